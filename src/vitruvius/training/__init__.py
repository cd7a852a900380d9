"""Training: one loop for superformers, retraining, fine-tuning and transfer."""
