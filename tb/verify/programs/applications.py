"""Table of the applications that run on served cards: benchmarks, MPI, storage, migration of virtual machines.

They run in the network of the hosts, except those that a launcher starts.
"""

import os
import shlex
from pathlib import Path

from weft.tb.app.serve.environment import BUILD_ROOT
from weft.tb.verify.programs.programs import Program

FOLDER = os.path.relpath(Path(__file__).parent)
ROCE_ROUTE = "the program sets no global route, which RoCEv2 requires (IBTA 1.7, annex A17)"
NO_UC = "RoCEv2 cards of this kind have no UC"
RSOCKETS = "LD_PRELOAD=libweft-preload.so:/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so"
OPENMPI = ("--allow-run-as-root", "--oversubscribe")
RDMA_MTL = ("--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include", "verbs;ofi_rxm")
GUEST = "qemu-system-x86_64 -m 64 -display none -machine accel=kvm:tcg"
GUEST_PORT, DAPL_PORT, ISER_PORT = 4444, 15828, 3260
ISER_POOL_MB = 64      # default 1024, which tgtd registers at the first connection request: 10 s on a busy machine
TARGET, INITIATOR = "iqn.2026-01.weft:disk", "iqn.2026-01.weft:a"


def _fio(verb, *options):
    common = ("--ioengine=rdma", "--port={port}", "--bs=64k", "--size=1m", "--iodepth=16", *options)
    return Program("fio", "fio", kind=shlex.join((verb, *options)), on_card=True, network=True, roles=(
        ("--name=receiver", "--rw=read", *common),
        ("--name=sender", "--rw=write", *common, f"--verb={verb}", "--hostname={server}")))


def _qperf(*tests, forbidden=()):
    return Program("qperf", "qperf", kind=" ".join(tests), network=True, forbidden=forbidden, roles=(
        ("-lp", "{port}"), ("-lp", "{port}", "-t", "1", "{server}", "-cm1", *tests, "quit")))


def _script(name, package, server, client, **options):
    """Return a pair of which each end is a line of the shell."""
    return Program(name, package, roles=(("-c", server), ("-c", client)), shell=True, network=True, **options)


def _openmpi(*options, variables=()):
    return Program("mpirun.openmpi", "libopenmpi-dev", (*OPENMPI, *options), variables=variables, **_ranks("openmpi"))


def _mpich(*variables):
    return Program("mpirun.mpich", "libmpich-dev", variables=variables, **_ranks("mpich"))


def _ranks(kind):
    program = f"{BUILD_ROOT}/ranks.{kind}"
    return {"before": (f"mpicc.{kind}", "-o", program, f"{FOLDER}/ranks.c"), "ranks": (program,)}


def _mpi4py(test, *options):
    return Program("mpirun.openmpi", "python3-mpi4py", (*OPENMPI, *RDMA_MTL), kind=f"mpi4py {test}",
                   ranks=("/usr/bin/python3", "-m", "mpi4py.bench", test, *options))


def _dapl(host, address):
    """Return the shell's line of an end of dtest: its registry names the card by the name of its host."""
    file = f"{BUILD_ROOT}/dat.{host}"
    entry = f'weft u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 "{host} 0" ""'
    return f"echo '{entry}' > {file}; DAT_OVERRIDE={file} dtest -P weft -b 8192{address}"


def _iser_target():
    """Return the shell's line of a target; tgtd wants the initiator in two lists, of addresses and of names."""
    tgtadm = "tgtadm --lld iser --tid 1 --mode"
    return "; ".join((
        f"truncate -s 1M {BUILD_ROOT}/disk", f"tgtd -f --iser pool_sz_mb={ISER_POOL_MB} & tgtd=$!",
        "trap \"kill -9 $tgtd\" TERM",
        "until tgtadm --op show --mode sys > /dev/null 2>&1; do sleep 0.1; done",
        f"{tgtadm} target --op new --targetname {TARGET}",
        f"{tgtadm} logicalunit --op new --lun 1 -b $PWD/{BUILD_ROOT}/disk", f"{tgtadm} target --op bind -I ALL",
        f"{tgtadm} target --op bind -Q {INITIATOR}", "wait"))


def _iser_initiator():
    disk = f"-i {INITIATOR} iser://b/{TARGET}/1"
    return (f"timeout 60 sh -c 'until iscsi-inq {disk}; do sleep 0.1; done' && iscsi-readcapacity16 {disk} && "
            f"iscsi-perf -b 8 -m 4 -t 1 {disk}")


def _gloo(rank):
    return f"{BUILD_ROOT}/allreduce {rank} {BUILD_ROOT}/allreduce.store 65536"


APPLICATIONS = (
    *map(_fio, ("write", "read", "send")), _fio("write", "--mem=shm"),
    _qperf("rc_lat", "rc_bw", "rc_bi_bw"),
    _qperf("rc_rdma_write_lat", "rc_rdma_write_bw", "rc_rdma_write_poll_lat", "rc_rdma_read_lat", "rc_rdma_read_bw"),
    _qperf("rc_compare_swap_mr", "rc_fetch_add_mr", "ver_rc_compare_swap", "ver_rc_fetch_add"),
    _qperf("ud_lat", forbidden=("failed to create address handle", ROCE_ROUTE)),
    _qperf("uc_lat", forbidden=("failed to create QP: Operation not supported", NO_UC)),
    Program("iperf", "iperf", kind="rsockets", variables=(RSOCKETS,), on_card=True, network=True, roles=(
        ("-s", "-P", "1", "-p", "{port}"), ("-c", "{server}", "-p", "{port}", "-l", "8k", "-n", "1M"))),
    _script("dtest", "dapl2-utils", _dapl("b", ""), _dapl("a", " -h {server}"), own_port=DAPL_PORT),
    _script("qemu-system-x86_64", "qemu-system-x86", f"exec {GUEST} -incoming rdma:0:{GUEST_PORT}",
            f"printf 'migrate rdma:b:{GUEST_PORT}\\ninfo migrate\\nquit\\n' | {GUEST} -monitor stdio",
            kind="migration of 64 MiB", own_port=GUEST_PORT, on_card=True, endless=True,
            figure=r"status: completed(?:.|\n)*^total time: (\d+) ms", unit="ms"),
    _script("g++", "libgloo-dev", _gloo(0), _gloo(1), kind="gloo", own_port=0, before=(
        "sh", "-c", f"rm -rf {BUILD_ROOT}/allreduce.store && mkdir -p {BUILD_ROOT}/allreduce.store && "
        f"g++ -O1 -o {BUILD_ROOT}/allreduce {FOLDER}/allreduce.cpp -lgloo")),
    _script("tgtd", "tgt libiscsi-bin", _iser_target(), _iser_initiator(), kind="iSER", own_port=ISER_PORT,
            on_card=True, endless=True, figure=r"iops average (\d+)", unit="reads/s"),
    _openmpi("--mca", "pml", "ucx"),
    _openmpi("--mca", "pml", "ucx", variables=("UCX_TLS=rc_verbs,ud_verbs,self",)),
    _openmpi("--mca", "pml", "ucx", variables=("UCX_TLS=ud_verbs,self",)),
    _openmpi(*RDMA_MTL),
    _mpi4py("ringtest", "-l", "10", "-n", "1024"),
    _mpich(), _mpich("UCX_TLS=rc_verbs,ud_verbs,self"), _mpich("UCX_TLS=ud_verbs,self"),
)
