"""Tests of the container example without a container runtime: its commands run in two namespaces."""

import itertools
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from weft.driver.ibverbs.install import install, pack
from weft.model.impairments import FrameKind, frame_kind
from weft.tb.app.serve.environment import LIBRARY_FOLDER
from weft.tb.sim.flow.tools import tools_expected
from weft.tb.sim.link.pcap import read_pcap
from weft.tb.test.system import need
from weft.tb.test.verify.document.commands import DOCUMENTS, blocks
from weft.tb.test.verify.document.test_commands import Page
from weft.tb.verify.programs.namespaces import ADDRESSES, namespaces

FOLDER = Path(__file__).resolve().parents[4] / "examples/containers"
ROLES, LIMIT_S, PORT = ("cards", "server", "client"), 180, 18990
ITERATIONS = 500       # enough that 1 % loss affects each direction, whatever the seed
NEEDED = {"ib_write_bw": "perftest", "rping": "rdmacm-utils"}


def parsed(name):
    return yaml.safe_load((FOLDER / name).read_text())


@pytest.fixture(scope="module")
def prefix(library, tmp_path_factory):
    """Return the folder in which the libraries are installed."""
    return install(tmp_path_factory.mktemp("prefix"), LIBRARY_FOLDER)


def test_each_container_runs_a_step_without_privilege():
    services = parsed("compose.yaml")["services"]
    assert {name: service["command"] for name, service in services.items()} == {role: [role] for role in ROLES}
    for service in services.values():
        assert not {"privileged", "cap_add", "devices", "network_mode", "user"} & set(service)
        assert "sockets:/run/weft" in service["volumes"]
    dockerfile = (FOLDER / "Dockerfile").read_text()
    assert 'ENTRYPOINT ["/weft/examples/containers/steps.sh"]' in dockerfile
    assert "USER nobody" in dockerfile
    assert all(package in dockerfile for package in NEEDED.values())


def test_the_workflow_of_this_repository_runs_the_composition_for_three_minutes_at_most_and_keeps_the_captures():
    (job,) = parsed("composition.yml")["jobs"].values()
    steps = job["steps"]
    (up,) = (step for step in steps if " up " in step.get("run", ""))
    assert up["run"].startswith("docker compose --file examples/containers/compose.yaml up")
    assert up["timeout-minutes"] <= 3
    (kept,) = (step["with"]["path"] for step in steps if "upload" in step.get("uses", ""))
    volumes = parsed("compose.yaml")["services"]["cards"]["volumes"]
    assert any((FOLDER / volume.partition(":")[0]).resolve() == FOLDER.parents[1] / kept for volume in volumes)


def commands(name):
    """Return the commands of the workflow's only job, in order."""
    (job,) = parsed(name)["jobs"].values()
    return [step["run"] for step in job["steps"] if "run" in step]


def test_the_files_for_another_project_need_no_file_of_this_one():
    recipe = (FOLDER / "program.Dockerfile").read_text()
    for text in (*("\n".join(commands(name)) for name in ("workflow.yml", "faults.yml")), recipe):
        assert "pip install git+https://github.com/OWNER/weft" in text
        assert "examples/" not in text and "constraints.txt" not in text and "--editable" not in text
        assert {"gcc", "libibverbs-dev"} <= set(re.search(r"apt-get install(.*)", text.replace("\\\n", ""))[1].split())
    assert "weft.driver.ibverbs.install /usr/local" in recipe
    assert "pip install git+https://github.com/OWNER/weft\n" in (FOLDER.parents[1] / "docs/serve.md").read_text()


@pytest.mark.parametrize(("name", "program", "package"), [
    ("workflow.yml", "ib_write_bw", "perftest"), ("faults.yml", "ibv_rc_pingpong", "ibverbs-utils")])
def test_a_workflow_for_another_project_serves_hosts_and_runs_programs(library, tmp_path, name, program, package):
    if shutil.which(program) is None and not tools_expected():
        pytest.skip(f"{program} is missing; on Debian: apt-get install {package}")
    script = "\n".join(one for one in commands(name) if "weft run" in one or "weft serve" in one)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(["bash", "-e", "-c", script], cwd=tmp_path, stdout=log, stderr=subprocess.STDOUT,
                                   env=os.environ | {"PATH": path, "WEFT_BUILD": str(LIBRARY_FOLDER.parent.absolute())},
                                   start_new_session=True)
        try:
            status = process.wait(LIMIT_S)
        finally:
            os.killpg(process.pid, signal.SIGTERM)
    printed = (tmp_path / "log").read_text()
    assert status == 0, printed
    if name == "faults.yml":
        assert "1 hit" in printed and "transport retry counter exceeded" in printed, printed
        return
    assert printed.count("BW average") == 2, printed
    assert {file.name for file in (tmp_path / "captures").iterdir()} == {
        f"{host}.{kind}.pcap" for host in "ab" for kind in ("sent", "arrived")}


def test_steps_run_in_two_namespaces_and_captures_show_losses(prefix, tmp_path, needs_namespaces):
    if (absent := [name for name in NEEDED if shutil.which(name) is None]) and not tools_expected():
        pytest.skip(f"{absent} are missing; on Debian: apt-get install {' '.join(NEEDED[name] for name in absent)}")
    with needs_namespaces(), namespaces() as spaces:
        steps(prefix, tmp_path, spaces)
    for host, peer in ("ab", "ba"):
        sent, arrived = ([frame for _, frame in read_pcap(tmp_path / f"captures/{name}.pcap")]
                         for name in (f"{host}.sent", f"{peer}.arrived"))
        assert 0 < len(arrived) < len(sent)
    kinds = {frame_kind(frame) for _, frame in read_pcap(tmp_path / "captures/a.sent.pcap")}
    assert kinds >= {FrameKind.DATA, FrameKind.RETX}


def steps(prefix, folder, spaces):
    """Run the containers' steps."""
    environment = os.environ | {
        "PATH": f"{prefix}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}", "SOCKETS": str(folder),
        "CAPTURES": str(folder / "captures"), "SERVER": ADDRESSES["b"], "ITERATIONS": str(ITERATIONS)}

    def start(role, command):
        with (folder / role).open("w") as output:
            return subprocess.Popen([*command, FOLDER / "steps.sh", role], env=environment, stdout=output,
                                    stderr=subprocess.STDOUT)

    started = {"cards": start("cards", []), "server": start("server", spaces.inside("b", [])),
               "client": start("client", spaces.inside("a", []))}
    try:
        ended = [started[role].wait(LIMIT_S) for role in ("client", "server")]
    finally:
        for process in started.values():
            process.terminate()
            process.wait()
    printed = {role: (folder / role).read_text() for role in ROLES}
    assert ended == [0, 0], printed
    assert "BW average" in printed["client"]
    assert "ping data: rdma-ping-9" in printed["client"]


def without_docker(line, folder):
    """Return the command that a container runs, with its environment and with ``folder`` as that of the sockets."""
    words = shlex.split(line)
    cut = 1 + words.index({"run": "IMAGE", "exec": "cards"}[words[1]])
    given = [value for option, value in itertools.pairwise(words[:cut]) if option == "--env"]
    command = " ".join([*given, *words[cut:]]).replace("/run/weft", str(folder))
    return f"{command} &" if "--detach" in words else command


def test_commands_of_the_containers_on_the_page_run(prefix, tmp_path):
    need("ibv_rc_pingpong")
    [block] = [lines for lines in blocks(DOCUMENTS["docs/faults.md"]) if lines[0].startswith("docker")]
    page, server = Page(tmp_path), f"ibv_rc_pingpong -g 0 -c -n 20 -p {PORT}"
    page.environment["PATH"] = f"{prefix}/bin:{page.environment['PATH']}"
    try:
        for line in block:
            page.run(without_docker(line, tmp_path).replace("SERVER", server).replace("CLIENT", f"{server} localhost"))
    finally:
        page.end()
    assert "1 hit" in (tmp_path / "log").read_text()


def test_archive_contains_the_installed_files_and_programs_find_them(prefix, tmp_path):
    file = pack(tmp_path / "weft.tar.gz", LIBRARY_FOLDER)
    subprocess.run(["tar", "-xzf", file, "-C", tmp_path], check=True)
    unpacked = tmp_path / "weft-ibverbs"
    assert {str(path.relative_to(unpacked)) for path in unpacked.rglob("*")} == {
        str(path.relative_to(prefix)) for path in prefix.rglob("*")}
    shown = subprocess.run([unpacked / "bin/weft-run", "env"], capture_output=True, text=True, check=True).stdout
    assert f"LD_LIBRARY_PATH={unpacked}/lib/weft" in shown
    if shutil.which("pkg-config"):
        flags = subprocess.run(["pkg-config", "--libs", "weft-ibverbs"], capture_output=True, text=True, check=True,
                               env=os.environ | {"PKG_CONFIG_PATH": str(unpacked / "lib/pkgconfig")}).stdout
        assert "-l:libibverbs.so.1" in flags
