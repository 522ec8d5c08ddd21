/* Shares of QPs: shares QPS SECONDS writes 64 KiB again and again on each of QPS connected QPs of this host, and
 * prints the number of writes of each one that are complete. */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "connect.h"

enum { SIZE = 64 << 10, DEPTH = 4, ROUND = 256, QPS_MAX = 64 };
static char memory[2 * SIZE];

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int post(struct ibv_qp *qp, struct ibv_mr *mr, uint64_t number) {
    struct ibv_sge sge = { .addr = (uintptr_t)memory, .length = SIZE, .lkey = mr->lkey };
    struct ibv_send_wr *bad, wr = { .wr_id = number, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = IBV_SEND_SIGNALED, .wr.rdma = { .remote_addr = (uintptr_t)(memory + SIZE), .rkey = mr->rkey } };
    return ibv_post_send(qp, &wr, &bad);
}

int main(int count, char **arguments) {
    int qps = count > 2 ? atoi(arguments[1]) : 0;
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = list && *list ? ibv_open_device(*list) : NULL;
    struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;
    if (!pd || qps < 1 || qps > QPS_MAX) return 1;
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    struct ibv_cq *cq = ibv_create_cq(context, QPS_MAX * DEPTH, NULL, NULL, 0);
    struct ibv_qp_init_attr attr = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
    struct ibv_qp *qp[QPS_MAX];
    long done[QPS_MAX] = { 0 };
    union ibv_gid gid;
    if (!mr || !cq || ibv_query_gid(context, 1, 0, &gid)) return 2;
    for (int n = 0; n < qps; n++) {
        struct ibv_qp *peer = ibv_create_qp(pd, &attr);
        qp[n] = ibv_create_qp(pd, &attr);
        if (!peer || !qp[n] || to_rts(qp[n], gid, peer->qp_num, 0, 0) || to_rts(peer, gid, qp[n]->qp_num, 0, 0)) return 3;
    }
    for (int n = 0; n < qps * DEPTH; n++)
        if (post(qp[n % qps], mr, (uint64_t)(n % qps))) return 4;
    for (double end = now_s() + atof(arguments[2]); now_s() < end;)
        for (int n = 0; n < ROUND; n++) {
            struct ibv_wc wc;
            int found = ibv_poll_cq(cq, 1, &wc);
            if (found < 0 || (found && (wc.status || post(qp[wc.wr_id], mr, wc.wr_id)))) return 5;
            if (found) done[wc.wr_id]++;
        }
    for (int n = 0; n < qps; n++) printf("%ld ", done[n]);
    puts("");
    return 0;
}
