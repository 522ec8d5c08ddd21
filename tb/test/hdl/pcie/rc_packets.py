"""Packets of the RC interface, valid and invalid, and their expected results, with and without straddle."""

from dataclasses import dataclass

from weft.hdl.pcie.tlp import LANES

# UltraScale+ PCIe integrated block (PG213): the RC descriptor and its user field, as bits of the interface.
NORMAL, POISONED, BAD_STATUS, NO_DATA, MISMATCH, BAD_ADDRESS, INVALID_TAG = range(7)
FUNCTION_RESET, TIMEOUT = 8, 9
CODES = (NORMAL, POISONED, BAD_STATUS, NO_DATA, MISMATCH, BAD_ADDRESS, INVALID_TAG, FUNCTION_RESET, TIMEOUT)
TERMINATING = (BAD_STATUS, NO_DATA, FUNCTION_RESET, TIMEOUT)    # whatever the completed bit is
STATUSES = {"UR": 1, "CRS": 2, "CA": 4}
DISCONTINUE = 1 << 96
HEADER_DWORDS, PAGE_DWORDS = 3, 1024


@dataclass
class Completion:
    """A packet of the RC interface."""

    address: int        # of the first double word, divided by 4
    payload: tuple      # double words
    tag: int
    code: int = NORMAL
    status: int = 0
    poisoned: int = 0
    completed: int = 1
    discontinued: int = 0

    def words(self, rng):
        """Return its double words; reserved fields of the descriptor are random."""
        head = (self.address << 2 & 0xFFF | self.code << 12 | rng.getrandbits(13) << 16 | rng.getrandbits(1) << 29
                | self.completed << 30 | len(self.payload) << 32 | self.status << 43 | self.poisoned << 46
                | rng.getrandbits(16) << 48 | self.tag << 64 | rng.getrandbits(16) << 72 | rng.getrandbits(6) << 89)
        return [head >> 32 * k & 0xFFFF_FFFF for k in range(HEADER_DWORDS)] + list(self.payload)

    def beats(self, rng):
        """Yield ``(data, keep, last, user)`` of each beat without straddle; bits without meaning are random."""
        words = self.words(rng)
        for first in range(0, len(words), LANES):
            here = words[first:first + LANES]
            last = first + LANES >= len(words)
            # Only in the last beat does the bit show whether the hard block discontinued the packet.
            user = rng.getrandbits(161) & ~DISCONTINUE | DISCONTINUE * (self.discontinued if last else
                                                                       rng.getrandbits(1))
            unused = rng.getrandbits(32 * (LANES - len(here)))
            data = sum(word << 32 * k for k, word in enumerate(here)) | unused << 32 * len(here)
            yield data, (1 << len(here)) - 1, int(last), user

    @property
    def stray(self):
        """It belongs to no request of the card."""
        return self.code == INVALID_TAG

    @property
    def bad(self):
        return bool(self.code != NORMAL or self.status or self.poisoned)

    @property
    def ends(self):
        return bool(self.completed or self.code in TERMINATING)

    def check(self, beats, discontinued):
        """Compare with the CompletionBeats of the packet; ``discontinued``: flag of its last beat."""
        memory = {}
        for place, beat in enumerate(beats):
            last = place == len(beats) - 1
            assert beat.tag == self.tag, self
            assert beat.last == last and beat.done == (last and self.ends), self
            assert beat.error == (self.bad or last and bool(discontinued)), self
            for lane in range(LANES):
                if beat.lanes >> lane & 1:
                    word = (beat.dword + lane) % PAGE_DWORDS
                    assert word not in memory, f"{self}: double word {word} twice"
                    memory[word] = beat.data >> 32 * lane & 0xFFFF_FFFF
        wanted = {self.address + k: word for k, word in enumerate(self.payload)}
        assert not (self.bad and memory) and memory.items() <= wanted.items(), self
        assert memory == wanted or self.bad or discontinued, f"{self}: double words are missing"


def any_packet(rng, **fields):
    """Return a valid packet of any length, with the given ``fields``."""
    dwords = rng.choice([1, 12, 13, 14, 28, 29, 30, 45, rng.randint(1, 60)])
    fields = {"completed": rng.getrandbits(1), "tag": rng.getrandbits(8),
              "payload": tuple(rng.getrandbits(32) for _ in range(dwords)), **fields}
    fields.setdefault("address", rng.randint(0, PAGE_DWORDS - len(fields["payload"])))    # none crosses a page
    return Completion(**fields)
