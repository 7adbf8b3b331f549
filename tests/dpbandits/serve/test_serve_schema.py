"""The schema: every answer has a model, is of it, and a client that is written from it speaks to a running service."""

import importlib.util
import json
import re
import shutil
import socket
import subprocess
import threading
from pathlib import Path

import jsonschema_rs
import numpy as np
import pytest
import uvicorn
from serving import TOKENS, clients_table, configured, drain, knocks, refresh, served, wait_until

from dpbandits.serve.app import create
from dpbandits.serve.learner import Learner
from dpbandits.serve.many.front import Front
from dpbandits.serve.many.group import Group
from dpbandits.serve.metrics import Meter
from dpbandits.serve.openapi import schema

ROOT = Path(__file__).resolve().parents[3]
ARMS = np.eye(3).tolist()
EXPERIMENT = 'class = "Experiment"\narms = ["a", "b"]\nhorizon = 200\nassignment = "fixed"'


def checked(document, answer, path, method="get"):
    """An answer of its model, and which that is."""
    operation = document["paths"][path][method]
    told = operation["responses"][str(answer.status_code)]["content"]["application/json"]["schema"]
    jsonschema_rs.validate(told | {"components": document["components"]}, answer.json())
    return told["$ref"].rpartition("/")[-1]


@pytest.mark.thorough
def test_every_answer_is_of_its_model(tmp_path):
    """Of a bandit with raw curves, in an apprentice's place, of an experiment, and of one that shows pages."""
    models, listed = set(), set()
    services = {
        "bandit": {"more": "[page]\ncurves = true\nreference = [[[1.0, 0.0, 0.0]]]"},
        "apprentice": {"more": "[service]\nmode = 'apprentice'\n[page]\ncurves = true"},
        "experiment": {"policy": EXPERIMENT},
        "slates": {"policy": 'class = "SlatePrivateGLM"\ndim = 3\nk = 2\nhorizon = 200'},
    }
    for name, service in services.items():
        (tmp_path / name).mkdir()
        with served(configured(tmp_path / name, **service)) as (learner, browser):
            document = browser.send("GET", "/openapi.json").json()
            asked = {"bandit": {"arms": ARMS}, "apprentice": {"arms": ARMS, "chosen": 0}, "experiment": {}}
            asked["slates"] = {"names": ["a", "b", "c"], "arms": ARMS}
            what = "slates" if name == "slates" else "decisions"
            told = browser.send("POST", f"/v1/{what}", "decider", json={what: [asked[name]] * 40})
            models.add(checked(document, told, f"/v1/{what}", "post"))
            reward = [0.0, 1.0] if name == "slates" else 1.0
            rewards = [{"id": one["id"], "reward": reward} for one in told.json()[what]]
            told = browser.send("POST", "/v1/rewards", "learner", json={"rewards": rewards})
            models.add(checked(document, told, "/v1/rewards", "post"))
            told = browser.send("POST", "/v1/activations", "decider", json={"tickets": ["x"]})
            models.add(checked(document, told, "/v1/activations", "post"))
            drain(learner)
            refresh(browser, learner.policy.released().number)
            if name == "experiment":
                models.add(checked(document, browser.send("POST", "/v1/stop", "owner"), "/v1/stop", "post"))
            for path, methods in document["paths"].items():
                answer = browser.send("GET", path, "owner")
                if "get" in methods and answer.headers["content-type"] == "application/json":
                    models.add(checked(document, answer, path))
            listed |= {
                one["content"]["application/json"]["schema"]["$ref"].rpartition("/")[-1]
                for methods in document["paths"].values()
                for operation in methods.values()
                for code, one in operation["responses"].items()
                if code.startswith("2") and "application/json" in one["content"]
            }
    assert models >= listed > {"Answer", "Privacy", "Results", "Apprentice", "Curve"}


@pytest.fixture(params=["one run", "many runs"])
def document(request, tmp_path):
    if request.param == "one run":
        with served(configured(tmp_path)) as (_, browser):
            return browser.send("GET", "/openapi.json").json()
    path = tmp_path / "group.toml"
    clients = clients_table({"owner": ["own"]})
    path.write_text(f"[runs]\n[budget]\nepsilon = 1.0\ndelta = 1e-6\nunit = 'round'\n{clients}\n")
    return Front(Group.read(path), Meter())._schema


def test_operations_have_names_and_models(document):
    operations = [one for methods in document["paths"].values() for one in methods.values()]
    names = [one["operationId"] for one in operations]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z][A-Za-z]+", name) for name in names), names
    assert {"decide", "reward", "privacy"} <= set(names)
    for one in operations:
        for code, told in one["responses"].items():
            for media, content in told["content"].items():
                assert content["schema"], (one["operationId"], code, media)
    parts = document["components"]["schemas"]
    for name in re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document)):
        assert name in parts
    for path, methods in document["paths"].items():
        braces = re.findall(r"\{(\w+)\}", path)
        assert all([one["name"] for one in op.get("parameters", ())] == braces for op in methods.values())
    assert schema([])["openapi"] == "3.1.0"


# ------------------------------------------------------------------------------------------------- a client of it


def writer():
    spec = importlib.util.spec_from_file_location("typescript", ROOT / "examples" / "serve" / "typescript.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SAMPLE = """
import { Client, Refused } from "./client.mjs";
import type { Asked } from "./client.mjs";

const [url, decider, learner, owner]: string[] = process.argv.slice(2);
const asked: Asked = { decisions: [{ arms: [[1, 0, 0], [0, 1, 0]] }, { arms: [[0, 0, 1]] }], probabilities: false };
const { decisions } = await new Client(url, decider).decide(asked);
const rewards = decisions.map((one) => ({ id: one.id!, reward: 1.0 }));
const told = await new Client(url, learner).reward({ rewards });
const statuses: ("accepted" | "duplicate" | string)[] = told.rewards.map((one) => one.status);
const privacy = await new Client(url, owner).privacy();
let status = 0;
try {
  await new Client(url, "nobody").privacy();
} catch (error) {
  if (error instanceof Refused) status = error.status;
}
try {
  await new Client(url, decider).decideSlates({ slates: [{ names: ["a"], arms: [[1, 0, 0]] }] });
} catch (error) {
  if (error instanceof Refused) status += error.status;
}
console.log(JSON.stringify([decisions.length, statuses, privacy.spent.epsilon, privacy.unit, status]));
"""
WRONG = """
import { Client } from "./client.mjs";
const { decisions } = await new Client("", "").decide({ decisions: [{ arm: [[1, 0, 0]] }] });
"""


def plain(text):
    """The sample without its types: the few that it has."""
    text = re.sub(r"^import type.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"const (\[.*?\]|\w+): .*? = ", r"const \1 = ", text)
    return text.replace("id!", "id")


@pytest.fixture
def address(tmp_path):
    """Where a worker of this process listens."""
    config = configured(tmp_path)
    learner, listening = Learner(config), socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(create(config), log_config=None, lifespan="on"))
    before = knocks(config)
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    wait_until(lambda: knocks(config) > before)
    learner.step()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    thread.join()
    learner.close()


@pytest.mark.thorough
@pytest.mark.skipif(shutil.which("node") is None, reason="needs node 18 or newer")
def test_a_client_written_from_the_schema_speaks_to_a_service(address, tmp_path):
    writer().main(f"{address}/openapi.json", str(tmp_path))
    (tmp_path / "sample.mjs").write_text(plain(SAMPLE))
    tokens = [TOKENS[name] for name in ("decider", "learner", "owner")]
    command = ["node", "sample.mjs", address, *tokens]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stderr
    count, statuses, epsilon, unit, status = json.loads(found.stdout)
    assert (count, statuses, unit, status) == (2, ["accepted"] * 2, "round", 401 + 422)
    assert epsilon == pytest.approx(1.0, abs=1e-6)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("tsc") is None, reason="needs tsc, TypeScript's compiler")
def test_its_types_are_those_of_the_schema(document, tmp_path):
    code, types = writer().written(document)
    (tmp_path / "client.mjs").write_text(code)
    (tmp_path / "client.d.mts").write_text(types)
    (tmp_path / "node.d.ts").write_text("declare const process: { argv: string[] };\n")
    one_run = "/v1/decisions" in document["paths"]
    settings = {"target": "es2022", "module": "nodenext", "moduleResolution": "nodenext", "lib": ["es2022", "dom"]}
    options = {"compilerOptions": {**settings, "strict": True, "noEmit": True, "types": []}}
    for name, text, well in (("sample.mts", SAMPLE, one_run), ("wrong.mts", WRONG, False)):
        (tmp_path / name).write_text(text)
        (tmp_path / "tsconfig.json").write_text(json.dumps(options | {"files": [name, "node.d.ts"]}))
        found = subprocess.run(
            ["tsc", "-p", "."], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )
        assert (found.returncode == 0) is well, found.stdout
        assert "client.d.mts" not in found.stdout
