"""What belongs together is one group, over one unit or over several."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr.data.splits import SplitCandidate, group_candidates, parse_units
from tests.raising import raises_code


def fact(text: str = "т", **known: str) -> SplitCandidate:
    return SplitCandidate("p", "p.xml:1", text, **known)  # type: ignore[arg-type]


def own_keys(one: SplitCandidate, units: str) -> set[str]:
    return {next(one.keys(unit)) for unit in parse_units(units)}


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
    assert own_keys(fact(**known), units) == set(keys)


def test_texts_that_differ_in_spaces_only_are_one() -> None:
    assert len(set(group_candidates([fact("а  б"), fact(" а б")], ["text"]))) == 1


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
def test_joined_units_share_nothing_between_groups(facts: list[SplitCandidate]) -> None:
    groups = group_candidates(facts, ["writer", "text"])
    for one, its in zip(facts, groups, strict=True):
        for other, others in zip(facts, groups, strict=True):
            if its != others:
                assert one.text != other.text
                assert not one.writer or one.writer != other.writer


@given(facts=FACTS)
def test_joined_groups_are_no_larger_than_they_must_be(facts: list[SplitCandidate]) -> None:
    """Whatever is in one group is reached from its first sample by steps over a shared key."""
    groups, keys = (
        group_candidates(facts, ["writer", "text"]),
        [own_keys(fact, "writer+text") for fact in facts],
    )
    for group in set(groups):
        places = [place for place, its in enumerate(groups) if its == group]
        reached = keys[places[0]].copy()
        for _ in places:
            for place in places:
                reached |= keys[place] if keys[place] & reached else set()
        assert all(keys[place] <= reached for place in places)


def test_a_unit_that_does_not_exist_is_an_error() -> None:
    with raises_code("unknown-unit"):
        parse_units("writer+line")
