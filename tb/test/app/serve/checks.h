/* Checks of the C programs of this folder: each wrong one prints a line, and `wrong` counts them. */
#pragma once
#include "connect.h"

#define EVERYTHING \
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define CHECK(condition, ...) do { if (!(condition)) { \
    printf("line %d: %s is wrong: ", __LINE__, #condition); printf(__VA_ARGS__); puts(""); \
    fflush(stdout); wrong++; } } while (0)

static int wrong;

static inline int post(struct ibv_qp *qp, enum ibv_wr_opcode opcode, struct ibv_sge *sges, int count, void *remote,
                       uint32_t rkey, unsigned flags) {
    struct ibv_send_wr *bad = NULL, wr = { .wr_id = 7, .sg_list = sges, .num_sge = count, .opcode = opcode,
        .send_flags = flags | IBV_SEND_SIGNALED, .imm_data = 5 };
    if (opcode >= IBV_WR_ATOMIC_CMP_AND_SWP) wr.wr.atomic.remote_addr = (uintptr_t)remote, wr.wr.atomic.rkey = rkey;
    else wr.wr.rdma.remote_addr = (uintptr_t)remote, wr.wr.rdma.rkey = rkey;
    int error = ibv_post_send(qp, &wr, &bad);
    CHECK(!error || bad == &wr, "bad_wr of %s", strerror(error));
    return error;
}
