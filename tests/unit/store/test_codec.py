"""Records of the model survive the way to JSON and back, also between versions."""

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import StoreError
from engine.model.alert import Alert, AlertState
from engine.model.duration import Duration
from engine.model.event import Event, Kind
from engine.model.labels import Labels
from engine.model.notification import Sent
from engine.model.playbook import Mode, PlannedStep, Refusal, Run, RunState, StepState
from engine.store.codec import decode, encode

AT = datetime(2024, 5, 1, 12, tzinfo=UTC)

texts = st.text(st.characters(), max_size=8)
names = st.dictionaries(texts, texts, max_size=3)
labels = names.map(Labels)
instants = st.datetimes(
    AT.replace(tzinfo=None, year=1900),
    AT.replace(tzinfo=None, year=2200),
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))]),
)
maybe_instants = st.none() | instants
numbers = st.floats(allow_nan=False)  # NaN is unequal to itself and has a test of its own
lengths = st.timedeltas(timedelta(days=-999), timedelta(days=999))
plain = (
    st.none()
    | st.booleans()
    | st.integers()
    | numbers
    | texts
    | instants
    | lengths
    | lengths.map(Duration.of)
    | labels
)
params = st.dictionaries(
    texts | st.just("$"),
    st.recursive(
        plain | st.frozensets(texts, max_size=2),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.lists(inner, max_size=3).map(tuple)
            | st.dictionaries(texts | st.just("$"), inner, max_size=3)
        ),
        max_leaves=8,
    ),
    max_size=3,
)

alerts = st.builds(
    Alert,
    rule_id=texts,
    labels=labels,
    signal=labels,
    annotations=names,
    state=st.sampled_from(AlertState),
    value=numbers,
    details=st.dictionaries(texts, numbers, max_size=3),
    active_at=instants,
    fired_at=maybe_instants,
    keep_firing_since=maybe_instants,
    resolved_at=maybe_instants,
    late=st.booleans(),
    warnings=st.lists(texts, max_size=2).map(tuple),
)
sent = st.builds(
    Sent,
    key=texts,
    firing=st.frozensets(texts),
    resolved=st.frozensets(texts),
    at=instants,
    receipt=names,
    owed=st.frozensets(texts),
)
steps = st.builds(
    PlannedStep,
    params=params,
    timeout=numbers,
    backoff=numbers,
    wait=numbers,
    state=st.sampled_from(StepState),
    started_at=maybe_instants,
    ended_at=maybe_instants,
)
runs = st.builds(
    Run,
    labels=labels,
    signal=labels,
    fired_at=instants,
    steps=st.lists(steps, max_size=2).map(tuple),
    created_at=instants,
    updated_at=instants,
    verify_until=maybe_instants,
    acted_at=maybe_instants,
    judged_at=maybe_instants,
    refusal=st.none() | st.builds(Refusal, until=maybe_instants),
    approve_until=maybe_instants,
)
events = st.builds(Event, at=instants, kind=st.sampled_from(Kind), subject=texts, reason=texts, data=names)


@given(alerts | sent | runs | events)
def test_a_record_comes_back_equal(record: object) -> None:
    text = encode(record)
    assert decode(type(record), text) == record
    assert text.isascii()
    json.loads(text, parse_constant=pytest.fail)  # NaN and Infinity are no JSON
    assert encode(decode(type(record), text)) == text


@given(params)
def test_parameters_come_back_with_their_types(given_params: dict[str, object]) -> None:
    step = replace(a_run().steps[0], params=given_params)
    back = decode(PlannedStep, encode(step)).params
    assert repr(_in_utc(back)) == repr(_in_utc(given_params))


def test_floats_that_json_does_not_know_come_back() -> None:
    run = a_run(params={"nan": float("nan"), "inf": float("-inf")})
    back = decode(Run, encode(run)).steps[0].params
    assert repr(back) == "{'nan': nan, 'inf': -inf}"
    alert = decode(Alert, encode(an_alert(value=float("nan"))))
    assert repr(alert.value) == "nan"


def test_parameters_of_the_models_enums_are_kept_as_their_text() -> None:
    assert decode(Run, encode(a_run(params={"mode": Mode.AUTO}))).steps[0].params == {"mode": "auto"}


def test_an_unknown_field_of_a_newer_version_is_passed_over() -> None:
    stored = {**json.loads(encode(an_alert())), "mood": {"of": "tomorrow"}}
    assert decode(Alert, json.dumps(stored)) == an_alert()


def test_a_missing_optional_field_of_an_older_version_takes_its_default() -> None:
    stored = json.loads(encode(an_alert(warnings=("w",), late=True)))
    del stored["warnings"], stored["late"], stored["annotations"]
    assert decode(Alert, json.dumps(stored)) == an_alert()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda text: text.replace('"rule_id"', '"other"'), "missing rule_id"),
        (lambda text: text.replace("firing", "screaming"), "screaming"),
        (lambda text: text[:-1], "cannot read a stored Alert"),
        (lambda text: "[]", "cannot read a stored Alert"),
        (lambda text: "null", "cannot read a stored Alert"),
        (lambda text: text.replace("2024-05-01T12:00:00+00:00", "yesterday"), "yesterday"),
    ],
)
def test_what_cannot_be_read_is_a_store_error(damage, words: str) -> None:
    with pytest.raises(StoreError, match=words):
        decode(Alert, damage(encode(an_alert())))


@dataclass(frozen=True)
class Untaught:
    """A record with a type that nobody taught the codec."""

    data: bytes = b""


@dataclass(frozen=True)
class Undecided:
    """A record with a union that JSON cannot tell apart."""

    data: int | str = field(default=0)


@pytest.mark.parametrize("record", [Untaught(), Undecided()])
def test_a_type_that_cannot_be_stored_is_refused(record: object) -> None:
    with pytest.raises(StoreError, match=r"teach engine/store/codec\.py"):
        encode(record)


def test_a_parameter_that_cannot_be_stored_is_refused_by_name() -> None:
    with pytest.raises(StoreError, match="bytes"):
        encode(a_run(params={"blob": b"x"}))


def test_an_instant_without_a_time_zone_is_refused() -> None:
    with pytest.raises(StoreError, match="time zone"):
        encode(an_alert(active_at=AT.replace(tzinfo=None)))


def an_alert(**fields: object) -> Alert:
    alert = Alert(
        rule_id="r",
        labels=Labels(alertname="X"),
        signal=Labels(),
        state=AlertState.FIRING,
        value=1.0,
        active_at=AT,
    )
    return replace(alert, **fields)  # type: ignore[arg-type]


def a_run(params: dict[str, object] | None = None) -> Run:
    step = PlannedStep(
        name="s",
        action="a",
        params=params or {},
        description="d",
        timeout=1.0,
        attempts=1,
        backoff=1.0,
        wait=0.0,
    )
    return Run(
        id="1",
        playbook="p",
        rule_id="r",
        labels=Labels(),
        signal=Labels(),
        fired_at=AT,
        target="t",
        mode=Mode.AUTO,
        state=RunState.PLANNED,
        steps=(step,),
        created_at=AT,
        updated_at=AT,
    )


def _in_utc(value: object) -> object:
    """The same value with its instants in UTC and its sets in order, so that `repr` compares types too."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(fold=0)
    if isinstance(value, frozenset):
        return ("a set", *sorted(value))
    if isinstance(value, dict):
        return {key: _in_utc(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_in_utc(item) for item in value)
    return value
