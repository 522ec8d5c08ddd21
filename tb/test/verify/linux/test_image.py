"""First use of the folder of the guests by several processes at once, without packages."""

import threading

from weft.tb.verify.linux import image

RUNS, PATIENCE_S = 4, 0.3


def test_files_of_all_guests_are_made_once(tmp_path, monkeypatch):
    """A folder that is half made has the name of none: each of the others waits until it is complete."""
    made, second, begun = [], threading.Event(), threading.Barrier(RUNS)

    def make_base(where, root, release):
        made.append(release)
        if len(made) == 1:
            second.wait(PATIENCE_S)         # another one would begin meanwhile
        else:
            second.set()
        root.mkdir(exist_ok=True)
        (root / "init").write_text("whole")

    def run(found):
        begun.wait()
        found.append((image._kernel_and_base()[1] / "init").read_text())

    where = tmp_path / "unpacked"
    (where / "boot").mkdir(parents=True)
    (where / "boot/vmlinuz-6.1").write_bytes(b"head" + image.lzma.compress(b"kernel"))
    monkeypatch.setattr(image, "FOLDER", tmp_path)
    monkeypatch.setattr(image, "kernel_package", lambda: "linux-image-6.1")
    monkeypatch.setattr(image, "unpacked", lambda names, folder: where)
    monkeypatch.setattr(image, "_make_base", make_base)
    found = []
    threads = [threading.Thread(target=run, args=[found]) for _ in range(RUNS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["whole"] * RUNS and made == ["6.1"]
    assert (tmp_path / "vmlinux-linux-image-6.1").read_bytes() == b"kernel"
