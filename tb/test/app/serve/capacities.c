/* Capacities that are claimed, ignored or refused: `capacities`, on one host. */
#include "checks.h"

static struct host h;

static int post_receives(struct ibv_srq *srq, uint64_t from, int count) {
    int posted = 0;
    for (; posted < count; posted++) {
        struct ibv_recv_wr *bad, wr = { .wr_id = from + (uint64_t)posted };
        int error = ibv_post_srq_recv(srq, &wr, &bad);
        CHECK(!error || error == ENOMEM, "%s", strerror(error));
        if (error) break;
    }
    return posted;
}

static struct ibv_srq *new_srq(uint32_t max_wr, uint32_t limit) {
    struct ibv_srq_init_attr init = { .attr = { .max_wr = max_wr, .max_sge = 2, .srq_limit = limit } };
    return ibv_create_srq(h.pd, &init);
}

/* A QP with an SRQ ignores its receive capacities, and takes no memory for them. */
static void receives_beside_srq(void) {
    const uint32_t counts[] = { 0, 16, 1 << 20, 1 << 21, UINT32_MAX }, sges[] = { 0, 1, 17, UINT32_MAX };
    struct ibv_srq *srq = new_srq(4, 0);
    struct ibv_qp *qps[5] = { NULL }; /* at the same time: together they would exceed the daemon's quota */
    NEED(srq);
    for (int k = 0; k < 4; k++) {
        for (int i = 0; i < 5; i++) {
            struct ibv_qp_cap cap = { 4, counts[i], 1, sges[k], 0 };
            struct ibv_qp_attr attr;
            struct ibv_qp_init_attr init;
            struct ibv_recv_wr *bad, wr = { 0 };
            qps[i] = new_qp(&h, srq, &cap);
            CHECK(qps[i], "%u receives of %u SGEs: %s", counts[i], sges[k], strerror(errno));
            if (!qps[i]) continue;
            NEED(!ibv_query_qp(qps[i], &attr, IBV_QP_CAP, &init));
            CHECK(!cap.max_recv_wr && !cap.max_recv_sge, "capacities at creation");
            CHECK(!init.cap.max_recv_wr && !init.cap.max_recv_sge, "capacities when queried");
            CHECK(ibv_post_recv(qps[i], &wr, &bad) == EINVAL, "a receive on a QP with an SRQ");
        }
        for (int i = 0; i < 5; i++)
            if (qps[i]) NEED(!ibv_destroy_qp(qps[i]));
    }
    for (int k = 1; k < 5; k++) {
        struct ibv_qp_cap cap = { 4, counts[k], 1, k == 1 ? 17 : 1, 0 };
        CHECK(k == 2 || (!new_qp(&h, NULL, &cap) && errno == EINVAL), "%u receives without an SRQ: %s", counts[k],
              strerror(errno));
    }
    NEED(!ibv_destroy_srq(srq));
}

/* Send `count` messages to the SRQ's QP; their receives are numbered from `from` on. */
static void consume(struct ibv_qp *sender, uint64_t from, int count) {
    for (int i = 0; i < count; i++) {
        NEED(!post(sender, IBV_WR_SEND, NULL, 0, NULL, 0, 0));
        struct ibv_wc wc[2] = { { .wr_id = 0 } };
        for (int k = 0; k < 2; k++)
            CHECK(status_of(h.cq, &wc[k]) == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(wc[k].status));
        const struct ibv_wc *got = &wc[wc[1].opcode == IBV_WC_RECV];
        CHECK(got->opcode == IBV_WC_RECV && got->wr_id == from + (uint64_t)i, "receive %lu instead of %lu",
              (unsigned long)got->wr_id, (unsigned long)from + (unsigned long)i);
    }
}

static void resized_srq(void) {
    struct ibv_srq *srq = new_srq(4, UINT32_MAX); /* the limit does not apply at creation */
    NEED(srq);
    struct ibv_qp_cap cap = { 4, 0, 1, 0, 0 }, plain = { 4, 4, 1, 1, 0 };
    struct ibv_qp *receiver = new_qp(&h, srq, &cap), *sender = new_qp(&h, NULL, &plain);
    NEED(receiver && sender);
    join(&h, receiver, &h, sender);
    struct ibv_device_attr device;
    NEED(!ibv_query_device(h.context, &device));
    CHECK(device.device_cap_flags & IBV_DEVICE_SRQ_RESIZE, "the claim");
    struct ibv_srq_attr attr = { .max_wr = UINT32_MAX, .srq_limit = 1 };
    CHECK(post_receives(srq, 0, 100) == 4, "a queue of 4");
    consume(sender, 0, 2);
    CHECK(!ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), "a limit, beside a capacity that the mask does not name");
    attr = (struct ibv_srq_attr){ .max_wr = 1000, .srq_limit = UINT32_MAX };
    CHECK(!ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), "growth while two are outstanding");
    NEED(!ibv_query_srq(srq, &attr));
    CHECK(attr.max_wr == 1000 && attr.max_sge == 2 && attr.srq_limit == 1, "%u %u %u", attr.max_wr, attr.max_sge,
          attr.srq_limit);
    CHECK(post_receives(srq, 4, 2000) == 998, "a queue of 1000");
    consume(sender, 2, 500);
    attr.max_wr = 499;
    CHECK(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR) == EINVAL, "fewer than are outstanding");
    attr = (struct ibv_srq_attr){ .max_wr = 600, .srq_limit = 601 };
    CHECK(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) == EINVAL, "a limit beyond the capacity");
    CHECK(post_receives(srq, 1002, 1) == 1, "a refused change changes nothing");
    attr.srq_limit = 600;
    CHECK(!ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT), "both");
    CHECK(post_receives(srq, 1003, 2000) == 99, "a queue of 600");
    consume(sender, 502, 600);
    attr.max_wr = (uint32_t)device.max_srq_wr + 1;
    CHECK(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR) == EINVAL, "more than the device has");
    attr.max_wr = 1;
    CHECK(!ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR) && post_receives(srq, 0, 3) == 1, "a queue of one");
    consume(sender, 0, 1);
    NEED(!ibv_destroy_qp(receiver) && !ibv_destroy_qp(sender) && !ibv_destroy_srq(srq));
}

static void inline_data(void) {
    static unsigned char target[4096], data[2048];
    const uint32_t lengths[] = { 0, 1, 16, 17, 63, 64, 255, 256, 257, 512, 1023, 1024 };
    struct ibv_qp_cap cap = { 8, 8, 2, 1, 1 << 16 };
    struct ibv_mr *mr = ibv_reg_mr(h.pd, target, sizeof target, EVERYTHING);
    struct ibv_qp *qp = NULL, *peer;
    struct ibv_wc wc;
    NEED(mr);
    for (; !(qp = new_qp(&h, NULL, &cap)); cap.max_inline_data /= 2) CHECK(errno == EINVAL, "%s", strerror(errno));
    CHECK(cap.max_inline_data >= 1024, "%u bytes", cap.max_inline_data);
    NEED(peer = new_qp(&h, NULL, &cap));
    join(&h, qp, &h, peer);
    for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int opcode = IBV_WR_RDMA_WRITE; opcode <= IBV_WR_SEND_WITH_IMM; opcode++) {
            uint32_t n = lengths[i], first = n / 3;
            struct ibv_sge sges[] = { { (uintptr_t)data, first, 9 }, { (uintptr_t)data + 1000, n - first, 8 } };
            struct ibv_sge into = { (uintptr_t)target, sizeof target, mr->lkey };
            struct ibv_recv_wr *bad, receive = { .sg_list = &into, .num_sge = 1 };
            memset(target, 0xEE, sizeof target);
            memset(data, (int)(i * 4 + (unsigned)opcode + 1), sizeof data);
            if (opcode != IBV_WR_RDMA_WRITE) NEED(!ibv_post_recv(peer, &receive, &bad));
            CHECK(!post(qp, opcode, sges, 2, target, mr->rkey, IBV_SEND_INLINE), "%u bytes", n);
            memset(data, 0, sizeof data); /* they are taken when they are posted */
            for (int k = 0; k < 1 + (opcode != IBV_WR_RDMA_WRITE); k++)
                CHECK(status_of(h.cq, &wc) == IBV_WC_SUCCESS, "opcode %d, %u bytes: %s", opcode, n,
                      ibv_wc_status_str(wc.status));
            uint32_t right = 0;
            while (right < n && target[right] == (unsigned char)(i * 4 + (unsigned)opcode + 1)) right++;
            CHECK(right == n && target[n] == 0xEE, "opcode %d: %u bytes of %u", opcode, right, n);
        }
    struct ibv_sge beyond = { (uintptr_t)data, cap.max_inline_data + 1, 0 };
    CHECK(post(qp, IBV_WR_RDMA_WRITE, &beyond, 1, target, mr->rkey, IBV_SEND_INLINE) == EINVAL, "one byte too many");
    NEED(!ibv_destroy_qp(qp) && !ibv_destroy_qp(peer));
    const struct ibv_qp_cap impossible[] = { { 1 << 21, 1, 1, 1, 0 }, { 1, 1, 17, 1, 0 }, { 1, 1, 1, 1, UINT32_MAX } };
    for (int i = 0; i < 3; i++) {
        cap = impossible[i];
        CHECK(!new_qp(&h, NULL, &cap) && errno == EINVAL, "capacities %d: %s", i, strerror(errno));
    }
    NEED(!ibv_dereg_mr(mr));
}

/* Reads and atomics on a QP that may have none outstanding are refused, and harm nothing. */
static void without_reads(void) {
    static uint64_t memory[512];
    struct ibv_qp_cap cap = { 8, 8, 1, 1, 0 };
    struct ibv_qp_init_attr_ex init = { .send_cq = h.cq, .recv_cq = h.cq, .qp_type = IBV_QPT_RC, .cap = cap, .pd = h.pd,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .send_ops_flags = IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD };
    struct ibv_qp *qp = ibv_create_qp_ex(h.context, &init), *peer = new_qp(&h, NULL, &cap);
    struct ibv_mr *mr = ibv_reg_mr(h.pd, memory, sizeof memory, EVERYTHING);
    NEED(qp && peer && mr);
    join(&h, qp, &h, peer);
    struct ibv_qp_attr drained = { .qp_state = IBV_QPS_SQD }, none = { .max_rd_atomic = 0 },
        running = { .qp_state = IBV_QPS_RTS };
    NEED(!ibv_modify_qp(qp, &drained, IBV_QP_STATE) && !ibv_modify_qp(qp, &none, IBV_QP_MAX_QP_RD_ATOMIC)
         && !ibv_modify_qp(qp, &running, IBV_QP_STATE));
    struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey };
    for (int opcode = IBV_WR_RDMA_READ; opcode <= IBV_WR_ATOMIC_FETCH_AND_ADD; opcode++)
        CHECK(post(qp, opcode, &sge, 1, memory + 8, mr->rkey, 0) == EINVAL, "opcode %d", opcode);
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
    ibv_wr_start(ex);
    ibv_wr_rdma_read(ex, mr->rkey, (uintptr_t)memory);
    ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory, 8);
    CHECK(ibv_wr_complete(ex) == EINVAL, "a read of the extended interface");
    struct ibv_wc wc;
    NEED(!post(qp, IBV_WR_RDMA_WRITE, &sge, 1, memory + 8, mr->rkey, 0));
    CHECK(status_of(h.cq, &wc) == IBV_WC_SUCCESS, "a write afterwards: %s", ibv_wc_status_str(wc.status));
    none.max_rd_atomic = 1;
    NEED(!ibv_modify_qp(qp, &drained, IBV_QP_STATE) && !ibv_modify_qp(qp, &none, IBV_QP_MAX_QP_RD_ATOMIC)
         && !ibv_modify_qp(qp, &running, IBV_QP_STATE));
    NEED(!post(qp, IBV_WR_RDMA_READ, &sge, 1, memory + 8, mr->rkey, 0));
    CHECK(status_of(h.cq, &wc) == IBV_WC_SUCCESS, "a read with max_rd_atomic 1: %s", ibv_wc_status_str(wc.status));
    NEED(!ibv_destroy_qp(qp) && !ibv_destroy_qp(peer) && !ibv_dereg_mr(mr));
}

/* Try a write of two SGEs with a key that does not exist; return the status of its completion, or the error. */
static int tried(uint32_t first, uint32_t second) {
    struct ibv_qp_cap cap = { 8, 8, 2, 1, 0 };
    struct ibv_qp *qp = new_qp(&h, NULL, &cap), *peer = new_qp(&h, NULL, &cap);
    NEED(qp && peer);
    join(&h, qp, &h, peer);
    struct ibv_sge sges[] = { { 0, first, 0x123400 }, { 0, second, 0x123400 } };
    struct ibv_wc wc;
    int status = post(qp, IBV_WR_RDMA_WRITE, sges, 2, NULL, 0, 0);
    status = status ? -status : status_of(h.cq, &wc);
    NEED(!ibv_destroy_qp(qp) && !ibv_destroy_qp(peer));
    return status;
}

static void longest_message(void) {
    struct ibv_port_attr port;
    NEED(!ibv_query_port(h.context, 1, &port));
    const uint32_t most = port.max_msg_sz, ends[] = { most, most - 1, 1, UINT32_MAX, UINT32_MAX - 1 };
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < 5; k++) {
            int status = tried(ends[i], ends[k]), fits = (uint64_t)ends[i] + ends[k] <= most;
            CHECK(status == (fits ? IBV_WC_LOC_PROT_ERR : IBV_WC_LOC_LEN_ERR) || (!fits && status == -EINVAL),
                  "%u + %u bytes: %d", ends[i], ends[k], status);
        }
    CHECK(tried(most, 0) == IBV_WC_LOC_PROT_ERR, "the longest message in one SGE");
}

/* Queues of the depths that the device claims exist; deeper ones are invalid. */
static void depths(void) {
    struct ibv_device_attr d;
    NEED(!ibv_query_device(h.context, &d));
    for (int beyond = 0; beyond < 2; beyond++) {
        struct ibv_qp_cap cap = { (uint32_t)(d.max_qp_wr + beyond), (uint32_t)d.max_qp_wr, (uint32_t)d.max_sge,
                                  (uint32_t)d.max_sge, 0 };
        struct ibv_srq_init_attr init = { .attr = { (uint32_t)(d.max_srq_wr + beyond), (uint32_t)d.max_srq_sge, 0 } };
        errno = 0;
        struct ibv_qp *qp = new_qp(&h, NULL, &cap);
        CHECK(beyond ? !qp && errno == EINVAL : qp != NULL, "a QP, %d beyond: %s", beyond, strerror(errno));
        if (qp) NEED(!ibv_destroy_qp(qp));
        struct ibv_srq *srq = ibv_create_srq(h.pd, &init);
        CHECK(beyond ? !srq && errno == EINVAL : srq != NULL, "an SRQ, %d beyond: %s", beyond, strerror(errno));
        if (srq) NEED(!ibv_destroy_srq(srq));
        struct ibv_cq *cq = ibv_create_cq(h.context, d.max_cqe + beyond, NULL, NULL, 0);
        CHECK(beyond ? !cq && errno == EINVAL : cq && cq->cqe >= d.max_cqe, "a CQ, %d beyond: %s", beyond,
              strerror(errno));
        if (cq) NEED(!ibv_destroy_cq(cq));
    }
}

int main(void) {
    h = open_host(NULL);
    depths();
    receives_beside_srq();
    resized_srq();
    inline_data();
    without_reads();
    longest_message();
    printf("%d checks are wrong\n", wrong);
    return wrong > 0;
}
