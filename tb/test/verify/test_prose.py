"""Tests of the prose check: it finds each phrase of a rule, with its position, and in prose alone."""

import re

import pytest

from weft.tb.verify import prose

# A sentence for every rule, in the order of the rules; the first ones apply to the beginning of a docstring alone.
WRONG = """# The sign marks the string as code, so the check of the tree skips it.
What the card sends.
As :meth:`send`.
It is read. Whoever reads it waits.
Whoever reads it waits.
Each program whoever starts it runs.
It sends so many packets.
It is sent anew.
It runs amid loss.
The driver is told of it.
The table says which.
The card hears the peer.
It has a key of its own.
The input waits until he is granted.
Nobody reads it.
The room of the window.
One life of a QP.
A stranger sends a packet.
The block is homeless.
The node is turned out.
The fate of a frame.
Two reads are under way.
It waits behind the reads.
It runs on a card in time.
It ends by the clock on the wall.
It is sent in vain.
The program dies.
It is a list of the own card.
A message goes to and fro.
It ends after so long.
The list goes on.
The input gives way.
It comes of a loss.
The block is to be read.
It is used in place of a queue.
It sends nothing but frames.
It waits as ever.
The card speaks IPv4.
It ends if no completion is there.
That is nothing of a fabric.""".split("\n")[1:]


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """Create a folder in which the check lists every file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(prose.subprocess, "run", lambda *arguments, **options: type("Listed", (), {
        "stdout": "\n".join(sorted(file.name for file in tmp_path.iterdir())), "returncode": 0}))
    return tmp_path


@pytest.mark.parametrize(("rule", "sentence"), list(zip(prose.RULES, WRONG, strict=True)))
def test_each_rule_finds_its_phrase(rule, sentence):
    assert rule in {found for _, _, found in prose.check(sentence, opening=True)}


def test_plain_text_is_clean():
    assert not list(prose.check("Return the PSN of the oldest packet. The window slides once per cycle.", opening=True))
    assert not list(prose.check("The command `weft room` prints 'so many' and \"anew\", see https://nobody.example/house."))
    assert not list(prose.check("Two lines, and\nwhat follows them is not a first line."))


def test_places_and_exit_status(checkout, capsys):
    checkout.joinpath("block.py").write_text('''"""Block of the card.\n\nIt is\nsent anew.\n"""\n\n
NAMES = ("anew", "told")     # of so many fields
def send():
    """What is sent."""
    raise ValueError("the peer told nothing")
''')
    checkout.joinpath("block.md").write_text("# Title\n\n```\nanew;\n```\n\nIt is `anew`.\nIt is sent anew.\n")
    checkout.joinpath("block.c").write_text("int anew; // counts so many=\n")
    assert prose.main([]) == 1
    printed = capsys.readouterr().out
    assert re.findall(r"^(block\S+): '([^']*)'", printed, re.MULTILINE) == [
        ("block.c:1", "so many"), ("block.md:8", "anew"), ("block.py:4", "anew"), ("block.py:8", "so many"),
        ("block.py:10", "What"), ("block.py:11", "told")]
    assert all(rule.pattern in printed for rule in prose.RULES)
    for file in checkout.iterdir():
        file.write_text("\n")
    assert prose.main([]) == 0
    assert not capsys.readouterr().out


def test_strings_of_words_and_values_of_settings_are_checked(checkout, capsys):
    checkout.joinpath("block.py").write_text("CASE = 'a frame sent anew'\nCODE = 'anew = told(room, 3)', 'sent anew'\n"
                                             "TEXT = f'{CASE} was sent so many times'\n")
    checkout.joinpath("block.toml").write_text('name = "room"\nreason = "the room of a block"\n')
    checkout.joinpath("block.yml").write_text("name: room\nhelp: the room of a block = n\n")
    assert prose.main([]) == 1
    assert re.findall(r"^(block\S+): '([^']*)'", capsys.readouterr().out, re.MULTILINE) == [
        ("block.py:1", "anew"), ("block.py:3", "so many"), ("block.toml:2", "room"), ("block.yml:2", "room")]


def test_names_are_no_prose():
    assert not list(prose.check("room, told : int\n    Free entries.\nfates : callable(life)\n    Outcomes."))
    assert not list(prose.check("See [the source](../house/room.md)."))


def test_a_pointer_in_c_begins_no_comment(checkout, capsys):
    checkout.joinpath("block.c").write_text("int nap(struct context *c, int told) { /* waits */\n * for a room */ }\n")
    assert prose.main([]) == 1
    assert re.findall(r"^block.c:(\d): '([^']*)'", capsys.readouterr().out, re.MULTILINE) == [("2", "room")]


def test_messages_of_the_makefile_of_scripts_and_of_c_are_checked(checkout, capsys):
    checkout.joinpath("Makefile").write_text("help:\n\t@echo 'make synth  cells by room'\nroom: told\n")
    checkout.joinpath("run.sh").write_text('told=1\necho "the run is told"\n')
    checkout.joinpath("block.c").write_text('fail("room", "it is told");\nint told = call("anew", room);\n')
    assert prose.main([]) == 1
    assert re.findall(r"^(\w+\S*:\d+): '([^']*)'", capsys.readouterr().out, re.MULTILINE) == [
        ("Makefile:2", "room"), ("block.c:1", "told"), ("run.sh:2", "told")]


def test_a_path_outside_the_checkout_is_a_sentence(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        prose.main([str(tmp_path)])
    assert ended.value.code == 2
    assert "Git does not list these paths" in capsys.readouterr().err
