"""Linux guests with cards, and the server of the cards."""

import contextlib
import shutil
import threading
import time

from weft.driver.ibverbs.build import DIRECT, NAME, PRELOAD, CannotBuild, build
from weft.model.impairments import FrameKind
from weft.tb.app.machine.machine import Machine
from weft.tb.app.machine.settings import MachineSettings
from weft.tb.app.serve.environment import LIBRARY_FOLDER
from weft.tb.sim.flow.sources import ROOT
from weft.tb.verify.interop.image import LIBRARIES, NoImage, _libraries, _pack, unpacked
from weft.tb.verify.linux.guest import ANSWER_S, Guest, GuestFailed, command_of
from weft.tb.verify.linux.image import FOLDER, HERE, compile_python, kernel_and_initrd, qemu

PROGRAMS = ("ibv_rc_pingpong", "ib_write_bw", "rping")
PACKAGES = ("busybox-static", "ibverbs-utils", "perftest", "rdmacm-utils", "ibverbs-providers", "libibverbs1",
            "librdmacm1", "libibumad3", "libnl-3-200", "libnl-route-3-200", "libpci3", "zlib1g", "libudev1")
PAIR = {"a": "a", "b": "b"}


def add_served(initrd):
    """Add to the file system ``initrd`` what served cards need beside the driver.

    Raises
    ------
    NoImage, NoPackage
    """
    where, root = unpacked(PACKAGES, FOLDER / "programs"), initrd.with_name("served")
    archive = initrd.with_name("served.cpio")
    try:
        built = build(LIBRARY_FOLDER).parent
    except CannotBuild as problem:
        raise NoImage(str(problem)) from None
    for path in ("bin", LIBRARIES, "weft/build/ibverbs", "weft/weft/driver"):
        (root / path).mkdir(parents=True)
    programs = [where / "usr/bin" / name for name in PROGRAMS]
    for program in programs:
        shutil.copy(program, root / "bin")
    for library in _libraries(programs, where):
        if not library.name.startswith(("ld-linux", "libc.so")):        # of the guest's Python
            shutil.copy(library, root / LIBRARIES / library.name)
    for name in (NAME, PRELOAD, DIRECT, "stamp"):
        shutil.copy(built / name, root / "weft/build/ibverbs")
    for name in ("driver/ibverbs", "tb/app", "tb/sim"):
        shutil.copytree(ROOT / name, root / "weft/weft" / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "tb/__init__.py", root / "weft/weft/tb")
    shutil.copy(HERE / "guest_served.py", root / "weft")
    compile_python(root / "weft", root)
    _pack(root, archive, where / "bin/busybox", compressed=False)
    shutil.rmtree(root)
    with initrd.open("ab") as whole:        # the kernel unpacks one archive after the other
        whole.write(archive.read_bytes())
    archive.unlink()


class Lab:
    """Machines of all cards, and guests.

    Parameters
    ----------
    folder : Path
        For sockets, consoles and the initial file system; its path is short, as those of sockets must be.
    backend, preset, loss, seed
        Of ``weft machine``.
    cards : dict of str to str
        Names of the cards of each guest, each a letter. A guest with two cards has programs to serve them to.
    slow : int
        Factor by which the drivers' time is slower.

    Attributes
    ----------
    machine : Endpoints
        Served by a thread of this process.
    guests : dict of str to Guest
    sentences : list of str
        Reports of the server.
    daemon, pins
        The job of ``weft serve`` on a guest, and the number of its pinned pages before.
    """

    def __init__(self, folder, *, backend="functional", preset=None, loss=0.01, seed="1", cards=PAIR, slow=1):
        self.folder, self.cards, self.slow, self.sentences, self.guests = folder, cards, slow, [], {}
        self._programs = self._made()
        settings = MachineSettings(folder=str(folder), backend=backend, preset=preset, loss=loss, seed=seed,
                                   hosts=sorted("".join(cards.values())))
        self.preset, self._guests, self._failure = settings.card, contextlib.ExitStack(), None
        self._ended = threading.Event()
        self.machine, self.daemon, self.pins = self._started(settings), None, 0

    def _started(self, settings):
        """Return the machines, which are served from now on, until :meth:`_end`."""
        machine = Machine(settings, self.sentences.append)
        self._thread = threading.Thread(target=self.serve, args=(machine,), daemon=True)
        self._thread.start()
        return machine

    def serve(self, machine):
        """Serve the machines until the end."""
        try:
            while not self._ended.is_set():
                machine.turn()
        except BaseException as error:
            self._failure = error
            raise

    def _end(self):
        self._ended.set()
        self._thread.join()

    def _made(self):
        """Return what :meth:`command` needs, made before the server starts: it may take minutes."""
        kernel, initrd = kernel_and_initrd(self.folder)
        if any(len(cards) > 1 for cards in self.cards.values()):
            add_served(initrd)
        return qemu(), kernel, initrd

    def command(self, host, *, iommu):
        """Return the command of a guest, for :class:`Guest`."""
        return command_of(*self._programs, [self.folder / f"{card}.sock" for card in self.cards[host]], iommu=iommu)

    def start(self, hosts=None, *, iommu=True):
        """Start guests at the same time, and wait until their agents are ready."""
        hosts = hosts or self.cards
        for host in hosts:
            self.guests[host] = self._guests.enter_context(
                Guest(self.command(host, iommu=iommu), self.folder, host, iommu=iommu))
        for host in hosts:
            self.guests[host].booted()

    @property
    def ended(self):
        """A guest has ended, or the server of the cards has."""
        return self._failure is not None or any(guest.ended for guest in self.guests.values())

    def function(self, card):
        return self.machine.functions[card]

    def until(self, condition, what):
        """Wait until something is true of the cards.

        Raises
        ------
        GuestFailed
        """
        end = time.monotonic() + ANSWER_S
        while not condition():
            if self._failure is not None or time.monotonic() > end:
                raise GuestFailed(f"the server of the cards: no {what}: {self._failure or self.sentences}")
            time.sleep(0.01)

    def frames(self):
        """Return numbers of both links: (frames sent, data packets lost, retransmissions sent)."""
        counters = [link.counters for link in self.machine.links.values()]
        return (sum(each.sent.total() for each in counters), sum(each.destroyed_data for each in counters),
                sum(each.sent[FrameKind.RETX] for each in counters))

    def counters(self):
        """Return a sentence about links and cards, for the report of a failure."""
        links = {name: vars(link.counters) for name, link in self.machine.links.items()}
        cards = {name: dict(function.card.counters) for name, function in self.machine.functions.items()}
        return f"links: {links}; cards: {cards}; server: {self.sentences}"

    def close(self):
        """End guests first, then the server."""
        self._guests.close()
        self._end()
        self.machine.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
