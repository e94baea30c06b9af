"""What belongs together is one group, over one unit or over several."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr.data.splits import Placeable, groups_of, keys_of, parse_units
from dsocr.errors import DataError


def fact(text: str = "т", **known: str) -> Placeable:
    return Placeable("p", "p.xml:1", text, **known)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("known", "units", "keys"),
    [
        pytest.param({"writer": "a", "page": "1"}, "writer", ("writer a",), id="the unit that is asked for"),
        pytest.param({"page": "1"}, "writer", ("page 1",), id="where there is no writer, the page"),
        pytest.param({"document": "d", "page": "1"}, "writer", ("document d",), id="before the page, the document"),
        pytest.param({"document": "d", "page": "1"}, "page", ("page d/1",), id="two documents may have a page 1"),
        pytest.param({}, "document", ("text т",), id="else the text"),
        pytest.param({"writer": "a"}, "writer+text", ("writer a", "text т"), id="both"),
        pytest.param({}, "writer+text", ("text т",), id="the same key once"),
    ],
)
def test_a_sample_belongs_to_what_is_known_of_it(known: dict[str, str], units: str, keys: tuple[str, ...]) -> None:
    assert keys_of(fact(**known), parse_units(units)) == keys


def test_texts_that_differ_in_spaces_only_are_one() -> None:
    assert len(set(groups_of([fact("а  б"), fact(" а б")], ["text"]))) == 1


FACTS = st.lists(
    st.builds(
        fact,
        st.sampled_from("абвгдежз"),
        writer=st.sampled_from(["", "a", "b", "c", "d", "e"]),
        page=st.sampled_from("12"),
    ),
    min_size=1,
    max_size=30,
)


@given(facts=FACTS)
def test_joined_units_share_nothing_between_groups(facts: list[Placeable]) -> None:
    groups = groups_of(facts, ["writer", "text"])
    for one, its in zip(facts, groups, strict=True):
        for other, others in zip(facts, groups, strict=True):
            if its != others:
                assert one.text != other.text
                assert not one.writer or one.writer != other.writer


@given(facts=FACTS)
def test_joined_groups_are_no_larger_than_they_must_be(facts: list[Placeable]) -> None:
    """Whatever is in one group is reached from its first sample by steps over a shared key."""
    groups, keys = groups_of(facts, ["writer", "text"]), [set(keys_of(fact, ["writer", "text"])) for fact in facts]
    for group in set(groups):
        places = [place for place, its in enumerate(groups) if its == group]
        reached = keys[places[0]].copy()
        for _ in places:
            for place in places:
                reached |= keys[place] if keys[place] & reached else set()
        assert all(keys[place] <= reached for place in places)


def test_a_unit_that_does_not_exist_is_said() -> None:
    with pytest.raises(DataError, match="cannot split by 'line'; the units are: writer, document, page, text"):
        parse_units("writer+line")
