"""Counts and times of requests, in Prometheus's text format, and spans of them, for OpenTelemetry."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import entry_points
from typing import Any

__all__ = ["BOUNDS", "Meter", "Traces", "configure_traces", "gauge_lines", "time_lines", "trace_here"]

# milliseconds that sending the last spans may take
_LAST = 1000
BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)


class Meter:
    """Counts and times of this process's requests, by route and kind of answer.

    That a reward came, and when, is a person's data (it may be missing): that route is told to owners alone.
    """

    def __init__(self) -> None:
        self._answers: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._times: defaultdict[str, list[int]] = defaultdict(lambda: [0] * (len(BOUNDS) + 1))
        self._sums: defaultdict[str, float] = defaultdict(float)

    def count(self, route: str, status: int, seconds: float) -> None:
        """One request was answered."""
        self._answers[route, f"{status // 100}xx"] += 1
        self._sums[route] += seconds
        self._times[route][bisect_left(BOUNDS, seconds)] += 1

    def to_dict(self) -> dict[str, object]:
        """All of it, for JSON."""
        answers = [(route, kind, number) for (route, kind), number in list(self._answers.items())]
        return {"answers": answers, "times": dict(self._times), "sums": dict(self._sums)}

    def text(self, *, private: frozenset[str]) -> list[str]:
        """In Prometheus's text format, without the routes that are ``private``."""
        who = f'worker="{os.getpid()}"'
        lines = ["# TYPE dpbandits_requests_total counter"]
        for (route, kind), number in sorted(self._answers.items()):
            if route not in private:
                lines.append(f'dpbandits_requests_total{{{who},route="{route}",status="{kind}"}} {number}')
        lines.append("# TYPE dpbandits_request_seconds histogram")
        for route, counts in sorted(self._times.items()):
            if route in private:
                continue
            lines += time_lines(f'{who},route="{route}"', counts, self._sums[route])
        return lines


def time_lines(labels: str, counts: Iterable[int], seconds: float) -> list[str]:
    """The lines of a histogram of times, which are ``seconds`` together; ``counts`` has one number for each bound."""
    name, lines, total = "dpbandits_request_seconds", [], 0
    for bound, number in zip((*BOUNDS, "+Inf"), counts, strict=True):
        total += number
        lines.append(f'{name}_bucket{{{labels},le="{bound}"}} {total}')
    return [*lines, f"{name}_sum{{{labels}}} {seconds:.6f}", f"{name}_count{{{labels}}} {total}"]


def gauge_lines(gauges: Mapping[str, float]) -> list[str]:
    """The lines of figures that go up and down."""
    lines = []
    for name, number in gauges.items():
        lines += [f"# TYPE dpbandits_{name} gauge", f"dpbandits_{name} {float(number):g}"]
    return lines


class Traces:
    """Spans of this process's requests.

    A span has the request's route (with braces in the place of names), its method, the status of the answer, and the
    times of both; and it belongs to the trace that the header ``traceparent`` names. Nothing else is recorded: no path
    as it was sent, no other header (not ``tracestate``, nor ``baggage``), no address, nothing of a body or an answer,
    and no error's words. Requests that need no token make no span. Nor do those of ``private`` routes, by which rewards
    come: that one came, and when, is a person's data.

    Where spans go is OpenTelemetry's to say, by its environment variables, if its distribution is installed; else they
    go nowhere, and only the ids of traces are known here, for logs.

    Parameters
    ----------
    private : collection of str
        Routes.
    """

    def __init__(self, private: Collection[str]) -> None:
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._private, self._trace = private, trace
        self._tracer, self._parent = trace.get_tracer("dpbandits.serve"), TraceContextTextMapPropagator().extract

    def span(self, method: str, route: str, headers: Mapping[bytes, bytes]) -> AbstractContextManager[Any]:
        """A context in which a request is answered: with its span, or None."""
        if route in self._private:
            return nullcontext()
        parent = self._parent({"traceparent": headers.get(b"traceparent", b"").decode("latin-1")})
        told = {"http.request.method": method, "http.route": route}
        made = self._tracer.start_span(f"{method} {route}", parent, self._trace.SpanKind.SERVER, told)
        silent = {"record_exception": False, "set_status_on_exception": False}
        return self._trace.use_span(made, end_on_exit=True, **silent)

    def answered(self, span: Any, status: int) -> None:
        """Write down with which status."""
        span.set_attribute("http.response.status_code", status)
        if status >= 500:
            span.set_status(self._trace.StatusCode.ERROR)

    def flush(self) -> None:
        """Send what waits, before the process ends by a signal."""
        send = getattr(self._trace.get_tracer_provider(), "force_flush", None)
        if send is not None:
            send(_LAST)


def configure_traces() -> None:
    """Let spans go where OpenTelemetry's environment variables say, if its distribution is installed."""
    for one in entry_points(group="opentelemetry_configurator"):
        one.load()().configure()


def trace_here() -> dict[str, str]:
    """The ids of the trace and of the span in which this runs, if it runs in one, as logs have them."""
    from opentelemetry import trace

    found = trace.get_current_span().get_span_context()
    return {"trace_id": f"{found.trace_id:032x}", "span_id": f"{found.span_id:016x}"} if found.is_valid else {}
