import pytest

from vitruvius.registry import Registry


def test_registry_refuses_duplicates_and_lists_what_it_knows() -> None:
    registry: Registry[int] = Registry("number")
    registry.add("one", 1)
    registry.add("two", 2)
    assert dict(registry) == {"one": 1, "two": 2}
    with pytest.raises(ValueError, match="a number of this name is registered already; got 'one'"):
        registry.add("one", 3)
    with pytest.raises(ValueError, match=r"unknown number \(did you mean 'two'\?\); got 'tow'; allowed: one, two"):
        registry["tow"]
