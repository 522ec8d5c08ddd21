"""Agent of the Linux guest: runs programs of ``guest_programs`` in processes, as the host orders over a serial port.

Each line is JSON. Orders: ``{"job", "program", "arguments"}``, ``{"job", "input"}``, ``{"job", "signal"}``,
``{"end": true}``. Reports: ``{"ready": seconds since the kernel started}``, ``{"job", "output"}``, and ``{"job",
"status"}`` with the status of :func:`os.waitpid`. The programs are forked from the agent: imports are slow on an
emulated processor.
"""

import contextlib
import importlib
import json
import os
import select
import traceback
import tty

PORT = "/dev/ttyS1"


def lines_of(file, buffer):
    """Read from a descriptor, and return the complete lines; None at its end."""
    try:
        data = os.read(file, 1 << 16)
    except OSError:
        data = b""
    if not data:
        return None
    *lines, rest = (buffer.pop(file, b"") + data).split(b"\n")
    buffer[file] = rest
    return [json.loads(line) for line in lines]


def write_line(file, value):
    data = json.dumps(value).encode() + b"\n"
    while data:
        data = data[os.write(file, data):]


class Agent:
    """Jobs by number: process, input of the process; and its output by descriptor."""

    def __init__(self, port):
        self.port, self.jobs, self.outputs, self.buffer = port, {}, {}, {}
        self.programs = importlib.import_module("guest_programs")       # of the guest, where it lies beside this file

    def start(self, number, program, arguments):
        """Fork a program. Its module is imported before, once for all programs of the module."""
        program = self.programs.load(program)
        (in_read, in_write), (out_read, out_write) = os.pipe(), os.pipe()
        process = os.fork()
        if not process:
            status = 1
            try:
                os.setpgid(0, 0)
                os.close(self.port)
                for file in (in_write, out_read):
                    os.close(file)
                self.programs.run(program, arguments, in_read, out_write)
                status = 0
            except BaseException:
                write_line(out_write, traceback.format_exc())
            finally:
                os._exit(status)
        os.setpgid(process, process)        # here as well: the next order may be a signal
        os.close(in_read)
        os.close(out_write)
        self.jobs[number], self.outputs[out_read] = (process, in_write), number

    def obey(self, order):
        """Execute an order; return false if it ends the agent."""
        if order.get("end"):
            return False
        number = order["job"]
        if "program" in order:
            self.start(number, order["program"], order["arguments"])
        elif number in self.jobs:       # it may have ended in the meantime, or be about to
            process, file = self.jobs[number]
            if "signal" in order:
                os.killpg(process, order["signal"])     # with what the program has started
            else:
                with contextlib.suppress(BrokenPipeError):
                    write_line(file, order["input"])
        return True

    def relay(self, file):
        """Report the output of a program, and its end."""
        number = self.outputs[file]
        for value in (found := lines_of(file, self.buffer)) or ():
            write_line(self.port, {"job": number, "output": value})
        if found is None:
            process, to = self.jobs.pop(number)
            del self.outputs[file]
            self.buffer.pop(file, None)
            os.close(file)
            os.close(to)
            write_line(self.port, {"job": number, "status": os.waitpid(process, 0)[1]})

    def run(self):
        with open("/proc/uptime") as uptime:
            write_line(self.port, {"ready": float(uptime.read().split()[0])})
        while True:
            ready, *_ = select.select([self.port, *self.outputs], (), ())
            for file in ready:
                if file != self.port:
                    self.relay(file)
                elif not all(map(self.obey, lines_of(file, self.buffer) or ())):
                    return


if __name__ == "__main__":
    port = os.open(PORT, os.O_RDWR | os.O_NOCTTY)
    tty.setraw(port)
    Agent(port).run()
