"""The files of examples/serve/deploy: they parse, name figures that exist, and link to runbooks that exist."""

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from serving import Clock, configured, served

from dpbandits.serve.admin import Board
from dpbandits.serve.writer import Writer

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "examples" / "serve" / "deploy"
RUNBOOKS = (ROOT / "docs" / "runbooks.md").read_text(encoding="utf-8")


def slug(title):
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def known_figures(tmp_path):
    """What a board says of a worker and a learner that have told everything they can."""
    board = Board(Clock())
    with served(configured(tmp_path)) as (learner, browser):
        browser.decide({"arms": [[1, 0, 0], [0, 1, 0]]})
        writer = Writer(browser.config.database, horizon=1, wait=None)
        gauges = {"learner": learner.gauges(), "worker": writer.gauges()}
        for slot, (role, told) in enumerate(gauges.items()):
            writing = board.begin(slot, role)
            counted = {"answers": [["/v1/decisions", "2xx", 1]], "times": {"/v1/decisions": [1] * 12}, "sums": {}}
            os.write(writing, json.dumps(counted | {"gauges": told}).encode() + b"\n")
            while f"dpbandits_{role}_" not in board.text():
                pass
            os.close(writing)
    return set(re.findall(r"^(dpbandits_\w+)", board.text(), flags=re.MULTILINE))


def test_alerts_and_dashboard_name_figures_and_runbooks_that_exist(tmp_path):
    figures = known_figures(tmp_path)
    groups = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    panels = json.loads((DEPLOY / "dashboard.json").read_text())["panels"]
    asked = [rule["expr"] for rule in rules] + [one["expr"] for panel in panels for one in panel["targets"]]
    assert len(rules) >= 8
    assert {name for text in asked for name in re.findall(r"dpbandits_\w+", text)} <= figures
    sections = {slug(title) for title in re.findall(r"^## (.*)$", RUNBOOKS, flags=re.MULTILINE)}
    for rule in rules:
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert page == "docs/runbooks.md"
        assert anchor in sections, anchor


def test_manifests_parse_and_run_commands_that_exist():
    objects = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    assert [one["kind"] for one in objects] == ["Deployment", "Service", "StatefulSet"]
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    commands = [services[name]["command"] for name in ("workers", "learner")]
    commands += [one["spec"]["template"]["spec"]["containers"][0]["args"] for one in (objects[0], objects[2])]
    assert all(command[:2] == ["run.toml", "--only"] for command in commands)
    assert {command[2] for command in commands} == {"worker", "learner"}
    for volume in services["workers"]["volumes"]:
        assert (DEPLOY / volume.split(":")[0]).exists()
    docker = (DEPLOY / "Dockerfile").read_text()
    extras = re.search(r'"\.\[(.*?)\]"', docker)[1].split(",")
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras) <= set(known)
    assert "USER 10001" in docker


def test_every_command_in_the_runbooks_exists():
    from typer.testing import CliRunner

    from dpbandits.cli import app

    for command in set(re.findall(r"dpbandits serve (\w+) run\.toml", RUNBOOKS)):
        assert CliRunner().invoke(app, ["serve", command, "--help"]).exit_code == 0, command


@pytest.mark.skipif(shutil.which("nginx") is None, reason="needs nginx")
def test_nginx_reads_its_file(tmp_path):
    text = (DEPLOY / "nginx.conf").read_text()
    made = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x", "-keyout", "tls.key", "-out", "tls.crt"]
    subprocess.run(["openssl", *made], cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "nginx.conf").write_text(text.replace("/etc/dpbandits", str(tmp_path)))
    subprocess.run(["nginx", "-t", "-c", tmp_path / "nginx.conf"], check=True, capture_output=True)
