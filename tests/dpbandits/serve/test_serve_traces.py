"""Spans of requests: what they hold, and that it is all."""

import json
import logging

import pytest
from opentelemetry import trace
from serving import TOKENS, configured, served, written

from dpbandits.serve.config import Config
from dpbandits.serve.edge import JsonLines
from dpbandits.serve.endpoints import Endpoints
from dpbandits.serve.metrics import Traces, configure_traces, trace_here

MORE = "[service]\ntraces = true"
FEATURES = '[features]\nranges = { "context[].age" = [0, 100] }\n[rewards]\nwait = 600.0\ndefault = 0.0'
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HEADERS = {
    "traceparent": f"00-{TRACE}-{PARENT}-01",
    "tracestate": "vendor=secret-state",
    "baggage": "user=secret-baggage",
    "user-agent": "secret-agent",
    "x-forwarded-for": "secret-address",
}
ARMS = [[0.123456, 0.0, 0.0], [0.0, 0.654321, 0.0]]


class Span(trace.Span):
    """What is told to an OpenTelemetry that records everything."""

    def __init__(self, *told):
        (self.name, self.parent, self.kind, attributes), self.status, self.ended = told, None, 0
        self.attributes = dict(attributes or {})
        known = self.parent.trace_id if self.parent.is_valid else 7
        self.context = trace.SpanContext(known, 9, is_remote=False, trace_flags=trace.TraceFlags(1))

    def get_span_context(self):
        return self.context

    def set_attribute(self, key, value):
        self.attributes[key] = value

    def set_status(self, status, description=None):
        assert description is None
        self.status = status

    def is_recording(self):
        return True

    def end(self, end_time=None):
        self.ended += 1

    def _nothing(self, *_, **__):
        raise AssertionError("nothing else is told")

    set_attributes = add_event = update_name = record_exception = add_link = _nothing


class Tracer(trace.Tracer):
    def __init__(self):
        self.spans = []

    def start_span(self, name, context=None, kind=None, attributes=None, **more):
        assert not more
        assert {type(one) for one in context.values()} <= {trace.NonRecordingSpan}  # no baggage
        self.spans.append(Span(name, trace.get_current_span(context).get_span_context(), kind, attributes))
        return self.spans[-1]

    start_as_current_span = start_span


@pytest.fixture
def spans(monkeypatch):
    tracer = Tracer()
    monkeypatch.setattr(trace, "get_tracer", lambda *_: tracer)
    return tracer.spans


def told(span):
    """All that a span holds."""
    return str(vars(span)) + str(vars(span.parent) if hasattr(span.parent, "__dict__") else span.parent)


def test_a_span_holds_route_method_status_and_nothing_private(tmp_path, spans):
    config = configured(tmp_path, unit="person", policy=PERSONS, more=MORE)
    with served(config) as (_, browser):
        body = {"decisions": [{"arms": ARMS, "person": "secret-ann"}]}
        answer = browser.send("POST", "/v1/decisions", "decider", json=body, headers=HEADERS)
        (decision,) = answer.json()["decisions"]
        rewards = {"rewards": [{"id": decision["id"], "reward": 0.777}]}
        assert browser.send("POST", "/v1/rewards", "learner", json=rewards, headers=HEADERS).status_code == 200
        browser.send("POST", "/v1/decisions?secret-query=1", "decider", content=b'{"secret-body": 1}', headers=HEADERS)
        browser.send("GET", "/v1/privacy?secret-query=1", "owner")
        browser.send("DELETE", "/v1/privacy", "owner")
        for path in ("/healthz", "/livez", "/metrics", "/", "/docs", "/secret-path"):  # no token, no span
            browser.send("GET", path)
    decided, broken, privacy, other = spans
    assert [(one.name, one.ended) for one in spans] == [
        ("POST /v1/decisions", 1), ("POST /v1/decisions", 1), ("GET /v1/privacy", 1), ("GET /v1/privacy", 1)
    ]  # fmt: skip
    assert decided.attributes == {
        "http.request.method": "POST",
        "http.route": "/v1/decisions",
        "http.response.status_code": 200,
    }
    assert [one.attributes["http.response.status_code"] for one in (broken, privacy, other)] == [422, 200, 405]
    assert {one.status for one in spans} == {None}
    assert {one.kind for one in spans} == {trace.SpanKind.SERVER}
    assert f"{decided.parent.trace_id:032x}-{decided.parent.span_id:016x}" == f"{TRACE}-{PARENT}"
    assert len(decided.parent.trace_state) == 0
    assert not privacy.parent.is_valid
    private = ["secret", "0.123456", "0.654321", "0.777", decision["id"], *TOKENS.values()]
    assert [text for text in private for one in spans if text in told(one)] == []


PERSONS = 'class = "OnePassPrivateGLM"\ndim = 3\nhorizon = 300\nrounds_per_person = 3'


def test_nothing_is_told_of_an_events_id_nor_of_its_reward(tmp_path, spans):
    config = configured(tmp_path, more=f"{MORE}\n{FEATURES}")
    with served(config) as (_, browser):
        at, key = "/personalizer/v1.0", {"Ocp-Apim-Subscription-Key": "nobody's", **HEADERS}
        actions = [{"id": "secret-action", "features": [{"x": "secret-feature"}]}]
        body = {"eventId": "secret-event", "actions": actions, "deferActivation": True}
        browser.send("POST", f"{at}/rank", "decider", json=body, headers=HEADERS)
        browser.send("POST", f"{at}/events/secret-event/activate", "decider", headers=HEADERS)
        assert (
            browser.send("POST", f"{at}/events/secret-event/reward", json={"value": 1.0}, headers=key).status_code
            == 401
        )
        sent = browser.send("POST", f"{at}/events/secret-event/reward", "decider", json={"value": 1.0}, headers=HEADERS)
        assert sent.status_code == 204
    assert [one.name for one in spans] == [f"POST {at}/rank", f"POST {at}/events/{{eventId}}/activate"]
    assert [one.attributes["http.response.status_code"] for one in spans] == [201, 204]
    assert not any("secret" in told(one) for one in spans)


def test_an_error_inside_is_a_failed_span_and_a_line_with_its_trace(tmp_path, spans, monkeypatch):
    async def failing(*_):
        raise ValueError("secret words")

    monkeypatch.setattr(Endpoints, "privacy", failing)
    lines = []
    handler = logging.Handler()
    handler.setFormatter(JsonLines("worker", traces=True))
    handler.emit = lambda record: lines.append(json.loads(handler.format(record)))
    log = logging.getLogger("dpbandits.serve")
    log.addHandler(handler)
    try:
        with served(configured(tmp_path, more=MORE)) as (_, browser):
            assert browser.send("GET", "/v1/privacy", "owner", headers=HEADERS).status_code == 500
            log.warning("outside of a request")
    finally:
        log.removeHandler(handler)
    (span,) = spans
    assert (span.status, span.attributes["http.response.status_code"]) == (trace.StatusCode.ERROR, 500)
    (failed,) = (one for one in lines if "ValueError" in one["message"])
    assert (failed["trace_id"], failed["span_id"]) == (TRACE, f"{9:016x}")
    (outside,) = (one for one in lines if one["message"] == "outside of a request")
    assert "trace_id" not in outside
    assert "secret" not in told(span) + str(lines)


def test_without_a_distribution_the_callers_trace_is_in_the_log_and_goes_nowhere():
    traces = Traces({"/v1/rewards"})
    with traces.span("GET", "/v1/privacy", {b"traceparent": HEADERS["traceparent"].encode()}) as span:
        assert trace_here() == {"trace_id": TRACE, "span_id": PARENT}
        assert not span.is_recording()
        traces.answered(span, 500)
    assert trace_here() == {}
    for wrong in (b"", b"00-zz-yy-01", b"\xff", b"00-" + b"0" * 32 + b"-" + PARENT.encode() + b"-01", b"x" * 10_000):
        with traces.span("GET", "/v1/privacy", {b"traceparent": wrong}):
            assert trace_here() == {}
    with traces.span("POST", "/v1/rewards", {b"traceparent": HEADERS["traceparent"].encode()}) as span:
        assert (span, trace_here()) == (None, {})
    traces.flush()


def test_a_distribution_is_configured_and_told_to_send_at_the_end(tmp_path, monkeypatch, spans):
    calls = []

    class Configurator:
        def configure(self):
            calls.append("configured")

    class Point:
        def load(self):
            return Configurator

    class Provider:
        def force_flush(self, milliseconds):
            calls.append(milliseconds)

    monkeypatch.setattr("dpbandits.serve.metrics.entry_points", lambda group: [Point()])
    monkeypatch.setattr(trace, "get_tracer_provider", Provider)
    configure_traces()
    with served(configured(tmp_path, more=MORE)):
        assert calls == ["configured"]
    assert calls == ["configured", 1000]


def test_it_is_off_unless_it_is_asked_for_and_there(tmp_path, monkeypatch):
    monkeypatch.setattr(trace, "get_tracer", lambda *_: pytest.fail("it is off"))
    with served(configured(tmp_path)) as (_, browser):
        assert browser.send("GET", "/v1/privacy", "owner", headers=HEADERS).status_code == 200
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"service\.traces needs OpenTelemetry: python -m pip install"):
        Config.read(written(tmp_path, more=MORE))
