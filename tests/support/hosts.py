"""Hosts on one machine, each with its own network, processes, name and disk: two with a link of a chosen rate, or up to
four, each with a link to a switch.

A host is a set of Linux namespaces. Its first process ends when ours does, however that happens, and takes with it
all processes, the network and the disk of the host: a crash leaves nothing behind.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

ADDRESSES = {"first": "10.231.77.1", "second": "10.231.77.2"}
MORE_ADDRESSES = {**ADDRESSES, "third": "10.231.77.3", "fourth": "10.231.77.4"}
PORT = 29500
LINK = "wire0"
_TOOLS = ("ip", "tc", "unshare", "nsenter", "mount")
_END_S = 10.0
# Orphans become children of the first process: ignoring SIGCHLD reaps them. `cat` ends with our end of the pipe.
_FIRST_PROCESS = """
trap '' CHLD
set -e
hostname "$0"
mount -t tmpfs none "$1"
printf '127.0.0.1 localhost\\n%s' "$2" > "$1/names"
mount --bind "$1/names" /etc/hosts
ip link set lo up
echo ready
exec cat
"""


class NoHostsError(Exception):
    """Hosts cannot be created on this machine; the text has the reason."""


@dataclass(frozen=True)
class Host:
    """One host. Programs started through it run on it."""

    name: str
    address: str
    pid: int

    def start(self, command: Sequence[object], log: Path, **environment: str) -> subprocess.Popen[bytes]:
        """Start a program with one thread; its output goes to a file outside of the host."""
        with log.open("wb") as file:
            return subprocess.Popen(
                [*self._entered(), *map(str, command)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            )

    def run(self, *command: object) -> str:
        """Run a program to its end and return its output."""
        return _output([*self._entered(), *map(str, command)])

    def sent_bytes(self) -> int:
        """Bytes that this side of the link has sent, as the kernel counts them, with all headers."""
        stats = json.loads(self.run("ip", "-json", "-stats", "link", "show", "dev", LINK))
        return int(stats[0]["stats64"]["tx"]["bytes"])

    def cut(self) -> None:
        """Take the link down, as if the cable were pulled."""
        self.run("ip", "link", "set", LINK, "down")

    def give_up_after(self, retries: int) -> None:
        """Limit how often the kernel retransmits unacknowledged data before it closes a connection."""
        self.run("sh", "-c", f"echo {retries} > /proc/sys/net/ipv4/tcp_retries2")

    def outside_path(self, path: Path) -> Path:
        """A path of this host, as seen from outside."""
        return Path(f"/proc/{self.pid}/root{path}")

    def processes(self) -> dict[int, str]:
        """Pids, as seen from outside, and commands of all processes but the first."""
        namespace = Path(f"/proc/{self.pid}/ns/pid_for_children").readlink()
        commands = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if (folder / "ns" / "pid").readlink() == namespace:
                    commands[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
            except OSError:  # it has just ended
                continue
        return {number: command for number, command in commands.items() if command not in ("cat", "")}

    def rank(self, rank: int) -> int:
        """The pid of a rank."""
        for number in self.processes():
            try:
                if f"RANK={rank}".encode() in Path(f"/proc/{number}/environ").read_bytes().split(b"\0"):
                    return number
            except OSError:
                continue
        raise LookupError(f"{self.name} has no rank {rank}")

    def _entered(self) -> list[str]:
        # The process that created the pid namespace is not in it: only its children are.
        pids = f"--pid=/proc/{self.pid}/ns/pid_for_children"
        return ["nsenter", "--target", str(self.pid), "--net", "--uts", "--mount", pids, "--"]


Hosts = tuple[Host, ...]


@contextmanager
def two_hosts(disk: Path, rate: str | None = None, *, names_are_local: bool = False) -> Iterator[Hosts]:
    """Create two hosts and a link between them, and remove them at the end.

    ``disk`` is a folder of which each host has its own; all other files are shared. ``rate`` limits both directions of
    the link, as tc writes it: 1gbit, 100mbit. The hosts resolve each other's names; with ``names_are_local`` each
    resolves only its own name, to a loopback address, as Debian does.
    """
    _refuse_without_tools()
    disk.mkdir(parents=True, exist_ok=True)
    with ExitStack() as cleanup:
        first, second = (
            cleanup.enter_context(_host(name, address, disk, {name: "127.0.1.1"} if names_are_local else ADDRESSES))
            for name, address in ADDRESSES.items()
        )
        with _allowed():
            _link(first, second, LINK)
            for host in (first, second):
                _configure_link(host, rate)
        yield first, second


@contextmanager
def switched_hosts(disk: Path, number: int, rate: str | None = None) -> Iterator[Hosts]:
    """Create up to four hosts, each with a link to a switch, limited to ``rate`` in both directions."""
    known = dict(list(MORE_ADDRESSES.items())[:number])
    if len(known) < number:
        raise NoHostsError(f"at most {len(known)} hosts, not {number}")
    _refuse_without_tools()
    disk.mkdir(parents=True, exist_ok=True)
    with ExitStack() as cleanup:
        switch = cleanup.enter_context(_host("switch", "", disk, {}))
        hosts = tuple(cleanup.enter_context(_host(name, address, disk, known)) for name, address in known.items())
        with _allowed():
            switch.run("ip", "link", "add", "bridge0", "type", "bridge")
            switch.run("ip", "link", "set", "bridge0", "up")
            for host in hosts:
                port = f"to-{host.name}"
                _link(switch, host, port)
                switch.run("ip", "link", "set", port, "master", "bridge0", "up")
                _limit(switch, port, rate)
                _configure_link(host, rate)
        yield hosts


def _refuse_without_tools() -> None:
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        raise NoHostsError(f"{', '.join(missing)} not installed")
    if os.geteuid():
        raise NoHostsError("only root may create network namespaces")


@contextmanager
def _host(name: str, address: str, disk: Path, known: Mapping[str, str]) -> Iterator[Host]:
    namespaces = ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    names = "".join(f"{address} {name}\n" for name, address in known.items())
    command = [*namespaces, "sh", "-c", _FIRST_PROCESS, name, str(disk), names]
    pipes = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipes, stdout=pipes, stderr=pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            if process.stdout.readline() != b"ready\n":
                raise NoHostsError(f"namespaces are not allowed: {process.stderr.read().decode().strip()}")
            yield Host(name, address, process.pid)
        finally:
            process.stdin.close()
            try:
                process.wait(_END_S)  # until the last process of the host has ended
            finally:
                process.kill()


@contextmanager
def _allowed() -> Iterator[None]:
    try:
        yield
    except subprocess.CalledProcessError as error:
        raise NoHostsError(f"a link of limited rate is not allowed: {error.stderr.strip()}") from error


def _link(host: Host, other: Host, name: str) -> None:
    """Create both ends inside the hosts, invisible to this machine's network. The other host's end is LINK."""
    into_first = ["nsenter", "--target", str(host.pid), "--net", "--"]
    _output([*into_first, "ip", "link", "add", name, "type", "veth", "peer", "name", LINK, "netns", str(other.pid)])


def _configure_link(host: Host, rate: str | None) -> None:
    """Set address and rate of a host's end of the link."""
    host.run("ip", "address", "add", f"{host.address}/24", "dev", LINK)
    host.run("ip", "link", "set", LINK, "up")
    _limit(host, LINK, rate)


def _limit(host: Host, link: str, rate: str | None) -> None:
    if rate is not None:
        # A burst must hold whole packets of up to 64 KiB.
        limit = ["tbf", "rate", rate, "burst", "128kb", "latency", "100ms"]
        host.run("tc", "qdisc", "add", "dev", link, "root", *limit)


def _output(command: Sequence[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@dataclass
class Job:
    """One program on all hosts, and its logs."""

    hosts: Hosts
    programs: list[subprocess.Popen[bytes]]
    logs: list[Path]

    @property
    def running(self) -> bool:
        return any(program.poll() is None for program in self.programs)

    def wait(self, seconds: float) -> list[int]:
        """Return the exit statuses; raise TimeoutError with all logs if a program does not end."""
        try:
            return [program.wait(seconds) for program in self.programs]
        except subprocess.TimeoutExpired:
            raise TimeoutError(self.output()) from None

    def output(self) -> str:
        return "\n".join(f"--- {host.name}\n{log.read_text()}" for host, log in zip(self.hosts, self.logs, strict=True))


def start_ranks(hosts: Hosts, program: Sequence[object], logs: Path, **environment: str) -> Job:
    """Start a Python program as one rank per host, without torchrun."""
    variables = {
        "WORLD_SIZE": str(len(hosts)),
        "MASTER_ADDR": hosts[0].address,
        "MASTER_PORT": str(PORT),
        **environment,
    }
    paths = [logs / f"{host.name}.log" for host in hosts]
    command = [sys.executable, *program]
    programs = [host.start(command, paths[k], **variables, RANK=str(k), LOCAL_RANK="0") for k, host in enumerate(hosts)]
    return Job(hosts, programs, paths)


def start_torchrun(
    hosts: Hosts,
    program: Sequence[object],
    logs: Path,
    *,
    ranks: Sequence[int] = (1, 1),
    options: Sequence[object] = (),
    **environment: str,
) -> Job:
    """Start a Python program with torchrun, ``ranks[i]`` ranks on host i; the rendezvous is at the first."""
    rendezvous = ["--nnodes", len(hosts), "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{hosts[0].address}:{PORT}"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", *rendezvous, *options, "--nproc-per-node"]
    paths = [logs / f"{host.name}.log" for host in hosts]
    programs = [
        host.start([*torchrun, num_ranks, *program], path, **environment)
        for host, num_ranks, path in zip(hosts, ranks, paths, strict=True)
    ]
    return Job(hosts, programs, paths)
