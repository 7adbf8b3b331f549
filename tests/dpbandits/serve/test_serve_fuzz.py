"""Requests made up from the schema, valid and not: every answer is of the schema, and none an error of the service."""

import json
import os

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.core import NotSet
from serving import ONE_PASS, TOKENS, configured, drain, refresh, worker

from dpbandits.serve.learner import Learner

numbers = st.one_of(st.floats(-1, 1), st.floats(), st.integers(), st.just(10**400), st.text(max_size=3), st.none())
trees = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=4)),
    max_leaves=12,
)
vectors = st.lists(st.one_of(st.lists(st.floats(-0.5, 0.5), min_size=3, max_size=3), st.lists(numbers)), max_size=4)
asks = st.fixed_dictionaries(
    {},
    optional={
        "arms": st.one_of(vectors, trees),
        "context": st.one_of(st.lists(numbers), trees),
        "person": st.one_of(st.text(), trees),
        "chosen": st.one_of(st.integers(), trees),
        "probability": numbers,
        "further": trees,
    },
)
sound = st.fixed_dictionaries(
    {
        "arms": st.lists(st.lists(st.floats(-0.57, 0.57), min_size=3, max_size=3), min_size=1, max_size=4),
        "person": st.text(min_size=1),
    }
)
pages = st.fixed_dictionaries(
    {},
    optional={
        "names": st.one_of(st.lists(st.text(), max_size=4), trees),
        "arms": st.one_of(vectors, trees),
        "person": st.one_of(st.text(), trees),
    },
)
rewards = st.fixed_dictionaries({}, optional={"id": st.one_of(st.text(), trees), "reward": st.one_of(numbers, trees)})
bodies = {
    "/v1/decisions": st.one_of(
        trees, st.fixed_dictionaries({"decisions": st.one_of(st.lists(sound), st.lists(asks), trees)})
    ),
    "/v1/slates": st.one_of(trees, st.fixed_dictionaries({"slates": st.one_of(st.lists(pages), trees)})),
    "/v1/activations": st.one_of(
        trees, st.fixed_dictionaries({"tickets": st.one_of(st.lists(st.text(min_size=1)), trees)})
    ),
    "/v1/rewards": st.one_of(trees, st.fixed_dictionaries({"rewards": st.one_of(st.lists(rewards), trees)})),
}
whole = st.one_of(*(st.tuples(st.just(path), body.map(json.dumps)) for path, body in bodies.items()))
torn = st.tuples(st.sampled_from(sorted(bodies)), st.binary(max_size=50))


SLATES = 'class = "SlatePrivateGLM"\ndim = 3\nk = 2\nhorizon = 300\nrounds_per_person = 3'


@pytest.fixture(scope="module", params=[ONE_PASS, SLATES], ids=["one arm", "slates"])
def browser(request, tmp_path_factory):
    config = configured(tmp_path_factory.mktemp("fuzz"), policy=request.param, unit="person")
    learner = Learner(config)
    with worker(config) as found:
        refresh(found, 0)
        yield found
    # what was let in can be learned from
    drain(learner)
    learner.close()


@pytest.mark.thorough
@given(st.one_of(whole, torn), st.sampled_from([None, *TOKENS]), st.sampled_from(["POST", "GET", "PUT"]))
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_request_is_an_error_of_the_service(browser, made, role, method):
    path, content = made
    answer = browser.send(method, path, role, content=content)
    assert answer.status_code < 500, (path, content)
    if answer.status_code == 200:
        assert set(answer.json()) == {path.rpartition("/")[-1]}
    else:
        assert set(answer.json()) == {"error", "where"}


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30), st.binary(max_size=30))
@settings(max_examples=50, deadline=None)
def test_no_token_is_an_error_of_the_service(browser, path, token):
    answer = browser.send("GET", "/v1/released", headers={"Authorization": b"Bearer " + token.replace(b"\n", b"")})
    assert answer.status_code in (401, 200)
    answer = browser.send("GET", "/v1/" + path.replace("#", "").replace("?", ""))
    assert answer.status_code in (401, 404, 405, 307)


# how many requests to each that takes a body
EXAMPLES = int(os.environ.get("EXAMPLES", "5"))


def answered(browser, method, path, cases, statuses, examples):
    @given(cases, st.sampled_from([None, *TOKENS]))
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    def check(case, role):
        body = {"content": case.body} if isinstance(case.body, bytes) else {"json": case.body}
        answer = browser.send(method, path, role, **({} if isinstance(case.body, NotSet) else body))
        assert answer.status_code in statuses, (path, answer.status_code)
        # a worker without a release or a database may say so; here it has both
        assert answer.status_code < 500

    check()


@pytest.mark.thorough
def test_every_answer_is_one_that_the_document_names(browser):
    """All of the schema: bodies made of it, and broken ones, with and without tokens."""
    schema = schemathesis.openapi.from_dict(browser.send("GET", "/openapi.json").json())
    seen = set()
    for found in schema.get_all_operations():
        operation = found.ok()
        path, method = operation.path, operation.method.upper()
        statuses = {int(code) for code in operation.definition.raw["responses"]}
        modes = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE] if operation.body else [GenerationMode.POSITIVE]
        for mode in modes:
            cases = operation.as_strategy(generation_mode=mode)
            answered(browser, method, path, cases, statuses, EXAMPLES if operation.body else 2)
        seen.add(path)
    assert seen >= {"/v1/decisions", "/v1/activations", "/v1/rewards", "/v1/raw/apprentice", "/metrics", "/healthz"}
