/* Completions: order, signalling, fields, limits and resizing of a queue. */
#include "suite.h"

#include <pthread.h>

enum { MANY = 32, FEW = 8, SMALL_CQ = 4, READERS = 3, POLLED = 60 };

static void signal_all(struct ibv_qp_init_attr *init) { init->sq_sig_all = 1; }
static void few_sends(struct ibv_qp_init_attr *init) { init->cap.max_send_wr = FEW; }

CASE(completions_have_the_order_of_requests,
     "IBTA 10.8.5: completions of a work queue are in the order of its requests") {
    struct pair p = connected(HOW);
    struct ibv_sge sge = part(&p.a, 0, 3000), into = part(&p.b, 0, 3000), eight = part(&p.a, 8192, 8);
    uint64_t sends[MANY];
    int count = 0;
    for (uint64_t id = 0; id < MANY; id++) {
        static const enum ibv_wr_opcode kinds[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND,
                                                    IBV_WR_ATOMIC_FETCH_AND_ADD };
        enum ibv_wr_opcode kind = kinds[id % (p.a.atomics && p.b.atomics ? 4 : 3)];
        struct ibv_send_wr wr = request(kind, &p, kind == IBV_WR_ATOMIC_FETCH_AND_ADD ? &eight : &sge, 1, id);
        if (kind == IBV_WR_SEND) {
            NEED(!give(p.peer, &into, 1, id));
            sends[count++] = id;
        }
        NEED(!post(p.qp, &wr));
    }
    for (uint64_t id = 0; id < MANY; id++) succeeds(p.a.cq, id);
    for (int i = 0; i < count; i++) succeeds(p.b.cq, sends[i]);
}

CASE(a_list_is_carried_out_in_order, "ibv_post_send(3): a list of requests, linked by next") {
    struct pair p = connected(HOW);
    struct ibv_sge sges[MANY];
    struct ibv_send_wr wrs[MANY];
    fill(p.a.memory, MANY * 16, 4);
    for (int i = 0; i < MANY; i++) {
        sges[i] = part(&p.a, (size_t)i * 16, 16);
        wrs[i] = write_of(&p, &sges[i], (uint64_t)i, IBV_SEND_SIGNALED);
        wrs[i].next = i + 1 < MANY ? &wrs[i + 1] : NULL;
    }
    NEED(!post(p.qp, wrs));
    for (uint64_t id = 0; id < MANY; id++) succeeds(p.a.cq, id);
    CHECK(!memcmp(p.b.memory, p.a.memory + (MANY - 1) * 16, 16), "the data is not that of the last request");
}

CASE(unsignaled_requests_do_not_complete, "IBTA 10.8.6: unsignaled completions; ibv_post_send(3)") {
    struct pair p = connected(HOW);
    struct ibv_sge sge = part(&p.a, 0, 16);
    for (uint64_t id = 1; id <= 9; id++) {
        struct ibv_send_wr wr = write_of(&p, &sge, id, id % 3 ? 0 : IBV_SEND_SIGNALED);
        NEED(!post(p.qp, &wr));
    }
    for (uint64_t id = 3; id <= 9; id += 3) succeeds(p.a.cq, id);
    nothing(p.a.cq, "after the last signaled request");
}

CASE(sq_sig_all_signals_all, "ibv_create_qp(3): sq_sig_all") {
    struct pair p = connected_by(HOW, signal_all, OF_A);
    struct ibv_sge sge = part(&p.a, 0, 16);
    for (uint64_t id = 1; id <= 5; id++) {
        struct ibv_send_wr wr = write_of(&p, &sge, id, 0);
        NEED(!post(p.qp, &wr));
    }
    for (uint64_t id = 1; id <= 5; id++) succeeds(p.a.cq, id);
}

CASE(failed_unsignaled_request_completes, "IBTA 10.8.6: an unsignaled request that fails has a completion") {
    struct pair p = connected(HOW);
    struct ibv_sge sge = part(&p.a, 0, 16);
    struct ibv_send_wr wr = write_of(&p, &sge, 6, 0);
    wr.wr.rdma.rkey ^= 0x5500;
    NEED(!post(p.qp, &wr));
    struct ibv_wc wc = done(p.a.cq);
    CHECK(wc.wr_id == 6, "wr_id is %lu", (unsigned long)wc.wr_id);
    STATUS(wc, IBV_WC_REM_ACCESS_ERR);
}

CASE(completions_have_all_fields, "ibv_poll_cq(3): wr_id, opcode, byte_len, qp_num, imm_data, wc_flags") {
    struct pair p = connected(HOW);
    struct ibv_sge sge = part(&p.a, 0, 77), into = part(&p.b, 0, 2000);
    struct ibv_send_wr wr = request(IBV_WR_SEND_WITH_IMM, &p, &sge, 1, 0x123456789ABCDEF);
    wr.imm_data = htobe32(0xDEADBEEF);
    NEED(!give(p.peer, &into, 1, 0xFEDCBA9876543210) && !post(p.qp, &wr));
    struct ibv_wc wc = done(p.b.cq);
    CHECK(wc.wr_id == 0xFEDCBA9876543210 && wc.opcode == IBV_WC_RECV && wc.byte_len == 77, "wr_id, opcode or length");
    CHECK(wc.qp_num == p.peer->qp_num && wc.wc_flags & IBV_WC_WITH_IMM, "qp_num or flags");
    CHECK(be32toh(wc.imm_data) == 0xDEADBEEF, "immediate data is %x", be32toh(wc.imm_data));
    wc = done(p.a.cq);
    CHECK(wc.wr_id == 0x123456789ABCDEF && wc.opcode == IBV_WC_SEND && wc.qp_num == p.qp->qp_num, "of the sender");
    struct ibv_send_wr plain = request(IBV_WR_SEND, &p, &sge, 1, 2);
    NEED(!give(p.peer, &into, 1, 3) && !post(p.qp, &plain));
    wc = done(p.b.cq);
    CHECK(wc.wr_id == 3 && !(wc.wc_flags & IBV_WC_WITH_IMM), "a message without immediate data has the flag of one");
}

CASE(opcodes_of_completions, "ibv_poll_cq(3): the opcode of each kind of request") {
    static const struct { enum ibv_wr_opcode kind; enum ibv_wc_opcode code; } kinds[] = {
        { IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE }, { IBV_WR_RDMA_READ, IBV_WC_RDMA_READ },
        { IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WC_COMP_SWAP }, { IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_FETCH_ADD } };
    struct pair p = connected(HOW);
    struct ibv_sge sge = part(&p.a, 0, 8);
    for (int i = 0; i < (p.a.atomics && p.b.atomics ? 4 : 2); i++) {
        struct ibv_send_wr wr = request(kinds[i].kind, &p, &sge, 1, 1);
        NEED(!post(p.qp, &wr));
        struct ibv_wc wc = done(p.a.cq);
        STATUS(wc, IBV_WC_SUCCESS);
        CHECK(wc.opcode == kinds[i].code, "opcode %d for request %d", wc.opcode, kinds[i].kind);
    }
}

CASE(poll_takes_up_to_its_number, "ibv_poll_cq(3): at most num_entries; 0 if the CQ is empty") {
    struct pair p = connected(HOW);
    struct ibv_sge sge = part(&p.a, 0, 8);
    struct ibv_wc wcs[20];
    CHECK(!ibv_poll_cq(p.a.cq, 20, wcs), "a new CQ is not empty");
    for (uint64_t id = 1; id <= 10; id++) {
        struct ibv_send_wr wr = write_of(&p, &sge, id, IBV_SEND_SIGNALED);
        NEED(!post(p.qp, &wr));
    }
    settle(&p);
    uint64_t next = 1;
    while (next <= 10) {
        int n = ibv_poll_cq(p.a.cq, 3, wcs);
        CHECK(n >= 0 && n <= 3, "%d completions for num_entries 3", n);
        for (int i = 0; i < n; i++) CHECK(wcs[i].wr_id == next++, "the order differs");
        if (!n) {
            wcs[0] = done(p.a.cq);
            CHECK(wcs[0].wr_id == next++, "the order differs");
        }
    }
    CHECK(!ibv_poll_cq(p.a.cq, 20, wcs), "a further completion");
}

CASE(bad_request_in_a_list,
     "ibv_post_send(3): bad_wr names the first one that failed; the requests before it are posted") {
    struct pair p = connected(HOW);
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    NEED(!ibv_query_qp(p.qp, &attr, IBV_QP_CAP, &init));
    int too_many = (int)init.cap.max_send_sge + 1;
    struct ibv_sge *sges = calloc((size_t)too_many, sizeof *sges);
    for (int i = 0; i < too_many; i++) sges[i] = part(&p.a, 0, 4);
    fill(p.a.memory, 16, 1);
    struct ibv_send_wr third = request(IBV_WR_RDMA_WRITE, &p, sges, 1, 3), *bad = NULL;
    struct ibv_send_wr second = request(IBV_WR_RDMA_WRITE, &p, sges, too_many, 2);
    struct ibv_send_wr first = request(IBV_WR_RDMA_WRITE, &p, sges, 1, 1);
    first.next = &second;
    second.next = &third;
    third.wr.rdma.remote_addr += PAGE;
    CHECK(ibv_post_send(p.qp, &first, &bad), "more SGEs than max_send_sge are accepted");
    CHECK(bad == &second, "bad_wr is not the request with too many SGEs");
    succeeds(p.a.cq, 1);
    settle(&p);
    nothing(p.a.cq, "after the bad request");
    CHECK(all(p.b.memory + PAGE, 16, 0), "the request after the bad one is carried out");
}

CASE(bad_receive_in_a_list,
     "ibv_post_recv(3): bad_wr names the first one that failed; the requests before it are posted") {
    struct pair p = connected(HOW);
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    NEED(!ibv_query_qp(p.peer, &attr, IBV_QP_CAP, &init));
    int too_many = (int)init.cap.max_recv_sge + 1;
    struct ibv_sge *sges = calloc((size_t)too_many, sizeof *sges);
    for (int i = 0; i < too_many; i++) sges[i] = part(&p.b, 0, 4);
    struct ibv_recv_wr second = { .wr_id = 2, .sg_list = sges, .num_sge = too_many }, *bad = NULL;
    struct ibv_recv_wr first = { .wr_id = 1, .sg_list = sges, .num_sge = 1, .next = &second };
    CHECK(ibv_post_recv(p.peer, &first, &bad), "more SGEs than max_recv_sge are accepted");
    CHECK(bad == &second, "bad_wr is not the request with too many SGEs");
    struct ibv_sge sge = part(&p.a, 0, 4);
    struct ibv_send_wr wr = request(IBV_WR_SEND, &p, &sge, 1, 3);
    NEED(!post(p.qp, &wr));
    succeeds(p.b.cq, 1);
}

CASE(full_queue_refuses_and_recovers,
     "ibv_post_send(3): ENOMEM when the queue is full; a place is free once completed") {
    struct pair p = connected_by(HOW, few_sends, OF_A);
    struct ibv_sge sge = part(&p.a, 0, 8), into = part(&p.b, 0, 8);
    uint64_t posted = 0;
    struct ibv_send_wr wr = request(IBV_WR_SEND, &p, &sge, 1, 0);
    int error = 0;
    while (!error && posted < 100000) {       /* the peer has no receive request: nothing completes */
        wr.wr_id = posted;
        if (!(error = post(p.qp, &wr))) posted++;
    }
    CHECK(error == ENOMEM, "a full queue: %s after %lu requests", strerror(error), (unsigned long)posted);
    CHECK(posted >= FEW, "only %lu requests of %d fit", (unsigned long)posted, FEW);
    for (uint64_t id = 0; id < posted; id++) {
        NEED(!give(p.peer, &into, 1, id));
        succeeds(p.a.cq, id);
        succeeds(p.b.cq, id);
    }
    wr.wr_id = 5;
    NEED(!give(p.peer, &into, 1, 5) && !post(p.qp, &wr));
    succeeds(p.a.cq, 5);
}

CASE(unsignaled_requests_free_their_places,
     "IBTA 10.8.6: a later signaled completion confirms earlier unsignaled ones") {
    struct pair p = connected(HOW);
    struct ibv_sge sge = part(&p.a, 0, 8);
    for (uint64_t round = 0; round < 4; round++) {
        for (uint64_t i = 1; i <= DEPTH; i++) {
            struct ibv_send_wr wr = write_of(&p, &sge, i, i == DEPTH ? IBV_SEND_SIGNALED : 0);
            int error = post(p.qp, &wr);
            CHECK(!error, "request %lu of round %lu: %s", (unsigned long)i, (unsigned long)round, strerror(error));
        }
        succeeds(p.a.cq, DEPTH);
    }
}

CASE(cq_has_the_entries_asked_for,
     "ibv_create_cq(3): at least cqe entries; EINVAL beyond the device's limit or below 1") {
    struct pair p = ends();
    struct ibv_device_attr limits;
    NEED(!ibv_query_device(p.a.context, &limits));
    struct ibv_cq *cq = ibv_create_cq(p.a.context, 33, NULL, NULL, 0);
    NEED(cq);
    CHECK(cq->cqe >= 33, "%d entries instead of 33", cq->cqe);
    CHECK(!ibv_create_cq(p.a.context, 0, NULL, NULL, 0), "a CQ without entries is created");
    CHECK(!ibv_create_cq(p.a.context, limits.max_cqe + 1, NULL, NULL, 0) && errno == EINVAL,
          "a CQ of max_cqe + 1 entries is not EINVAL");
}

CASE(resize_keeps_completions, "ibv_resize_cq(3): completions in the CQ are kept") {
    struct pair p = connected(HOW);
    struct ibv_sge sge = part(&p.a, 0, 8);
    for (uint64_t id = 1; id <= 6; id++) {
        struct ibv_send_wr wr = write_of(&p, &sge, id, IBV_SEND_SIGNALED);
        NEED(!post(p.qp, &wr));
    }
    settle(&p);
    for (uint64_t id = 1; id <= 2; id++) succeeds(p.a.cq, id);
    int error = ibv_resize_cq(p.a.cq, 8 * DEPTH);
    LACKS(error == ENOSYS || error == EOPNOTSUPP, "ibv_resize_cq: %s", strerror(error));
    CHECK(!error && p.a.cq->cqe >= 8 * DEPTH, "resize: %s, then %d entries", strerror(error), p.a.cq->cqe);
    for (uint64_t id = 3; id <= 6; id++) succeeds(p.a.cq, id);
    struct ibv_send_wr wr = write_of(&p, &sge, 7, IBV_SEND_SIGNALED);
    NEED(!post(p.qp, &wr));
    succeeds(p.a.cq, 7);
}

CASE(resize_below_contents_loses_nothing,
     "ibv_resize_cq(3): it fails if the CQ holds more completions than asked for, or gives more entries") {
    struct pair p = connected(HOW);
    struct ibv_sge sge = part(&p.a, 0, 8);
    for (uint64_t id = 0; id < MANY; id++) {
        struct ibv_send_wr wr = write_of(&p, &sge, id, IBV_SEND_SIGNALED);
        NEED(!post(p.qp, &wr));
    }
    struct ibv_send_wr last = request(IBV_WR_RDMA_WRITE_WITH_IMM, &p, NULL, 0, MANY);
    NEED(!give(p.peer, NULL, 0, 1) && !post(p.qp, &last));
    succeeds(p.b.cq, 1);
    settle(&p);
    int error = ibv_resize_cq(p.a.cq, SMALL_CQ);
    LACKS(error == ENOSYS || error == EOPNOTSUPP, "ibv_resize_cq: %s", strerror(error));
    CHECK(error || p.a.cq->cqe > MANY, "a CQ of %d completions is resized to %d entries", MANY + 1, p.a.cq->cqe);
    for (uint64_t id = 0; id <= MANY; id++) succeeds(p.a.cq, id);
}

CASE(overrun_is_reported, "IBTA 11.6.3.2, ibv_get_async_event(3): an overrun CQ raises CQ_ERR, which names it") {
    struct pair p = ends();
    struct ibv_qp_init_attr init = rc(&p.a);
    init.send_cq = ibv_create_cq(p.a.context, SMALL_CQ, NULL, NULL, 0);
    NEED(init.send_cq);
    int entries = init.send_cq->cqe;
    LACKS(entries > 512, "the smallest CQ has %d entries", entries);
    init.cap.max_send_wr = (uint32_t)entries + 8;
    p.qp = make_qp(&p.a, init);
    p.peer = make_qp(&p.b, rc(&p.b));
    join(&p.a, p.qp, &p.b, p.peer, HOW);
    struct ibv_sge sge = part(&p.a, 0, 8);
    for (int i = 0; i < entries + 8; i++) {
        struct ibv_send_wr wr = write_of(&p, &sge, (uint64_t)i, IBV_SEND_SIGNALED);
        if (post(p.qp, &wr)) break;
    }
    CHECK(event_of(&p.a, IBV_EVENT_CQ_ERR) == init.send_cq, "no event CQ_ERR of this CQ");
}

CASE(other_completions_survive_a_destroyed_qp, "ibv_destroy_qp(3): a shared CQ keeps the completions of other QPs") {
    struct pair p = ends();
    struct ibv_qp *qps[2], *peers[2];
    struct ibv_sge sge = part(&p.a, 0, 8);
    for (int i = 0; i < 2; i++) {
        qps[i] = make_qp(&p.a, rc(&p.a));
        peers[i] = make_qp(&p.b, rc(&p.b));
        join(&p.a, qps[i], &p.b, peers[i], HOW);
    }
    for (uint64_t id = 0; id < MANY; id++) {
        struct ibv_send_wr wr = write_of(&p, &sge, id, IBV_SEND_SIGNALED);
        NEED(!post(qps[id % 2], &wr));
    }
    struct ibv_wc wc;
    NEED(!ibv_destroy_qp(qps[0]));
    for (uint64_t expected = 1; expected < MANY;) {
        wc = done(p.a.cq);
        if (wc.wr_id % 2 == 0) continue;
        CHECK(wc.wr_id == expected && !wc.status, "completion %lu of the other QP, '%s'", (unsigned long)wc.wr_id,
              ibv_wc_status_str(wc.status));
        expected += 2;
    }
}

/* Connect a pair whose requester has its completions in an extended CQ. */
static struct ibv_cq_ex *extended(struct pair *p) {
    *p = ends();
    struct ibv_cq_init_attr_ex attr = { .cqe = 2 * DEPTH, .wc_flags = IBV_WC_STANDARD_FLAGS };
    struct ibv_cq_ex *cq = ibv_create_cq_ex(p->a.context, &attr);
    LACKS(!cq, "ibv_create_cq_ex: %s", strerror(errno));
    struct ibv_qp_init_attr init = rc(&p->a);
    init.send_cq = ibv_cq_ex_to_cq(cq);
    p->qp = make_qp(&p->a, init);
    p->peer = make_qp(&p->b, rc(&p->b));
    join(&p->a, p->qp, &p->b, p->peer, HOW);
    return cq;
}

CASE(extended_cq_is_polled,
     "ibv_create_cq_ex(3): ENOENT when empty; next_poll advances; the fields are the completion's") {
    struct pair p;
    struct ibv_cq_ex *cq = extended(&p);
    struct ibv_poll_cq_attr none = { 0 };
    for (int i = 0; i < 3; i++) CHECK(ibv_start_poll(cq, &none) == ENOENT, "an empty CQ is not ENOENT");
    struct ibv_sge sge = part(&p.a, 0, 8);
    for (uint64_t id = 1; id <= 3; id++) {
        struct ibv_send_wr wr = write_of(&p, &sge, id, IBV_SEND_SIGNALED);
        NEED(!post(p.qp, &wr));
    }
    for (uint64_t id = 1; id <= 3;) {
        int n = ibv_start_poll(cq, &none);
        if (n == ENOENT) continue;
        CHECK(!n, "ibv_start_poll: %s", strerror(n));
        do {
            CHECK(cq->wr_id == id && cq->status == IBV_WC_SUCCESS, "completion %lu", (unsigned long)cq->wr_id);
            CHECK(ibv_wc_read_opcode(cq) == IBV_WC_RDMA_WRITE && ibv_wc_read_qp_num(cq) == p.qp->qp_num, "its fields");
            id++;
        } while (!(n = ibv_next_poll(cq)));
        CHECK(n == ENOENT, "ibv_next_poll: %s", strerror(n));
        ibv_end_poll(cq);
    }
    CHECK(ibv_start_poll(cq, &none) == ENOENT, "a further completion");
}

static struct ibv_cq_ex *polled;
static char seen[POLLED];
static int taken;

static int reads(uint64_t id) { return id % 3 == 0; }

/* Check the present completion; return its number. */
static uint64_t look(void) {
    uint64_t id = polled->wr_id;
    for (volatile int spin = 0; spin < 50; spin++) {} /* other threads must not change it now */
    CHECK(polled->wr_id == id && polled->status == IBV_WC_SUCCESS, "completion %lu changes, or is not a success",
          (unsigned long)id);
    CHECK(ibv_wc_read_opcode(polled) == (reads(id) ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE), "another opcode");
    CHECK(id < POLLED && !__atomic_exchange_n(&seen[id], 1, __ATOMIC_SEQ_CST), "completion %lu comes twice",
          (unsigned long)id);
    __atomic_add_fetch(&taken, 1, __ATOMIC_SEQ_CST);
    return id;
}

static void *read_completions(void *unused) {
    struct ibv_poll_cq_attr none = { 0 };
    (void)unused;
    while (__atomic_load_n(&taken, __ATOMIC_SEQ_CST) < POLLED) {
        int n = ibv_start_poll(polled, &none);
        if (n == ENOENT) continue;
        CHECK(!n, "ibv_start_poll: %s", strerror(n));
        while (look() % 4 && !(n = ibv_next_poll(polled))) {}
        CHECK(!n || n == ENOENT, "ibv_next_poll: %s", strerror(n));
        ibv_end_poll(polled);
    }
    return NULL;
}

CASE(threads_poll_one_extended_cq,
     "ibv_create_cq_ex(3): threads may poll a CQ that is not single-threaded; each completion comes once") {
    struct pair p;
    pthread_t threads[READERS];
    polled = extended(&p);
    for (int i = 0; i < READERS; i++) NEED(!pthread_create(&threads[i], NULL, read_completions, NULL));
    for (uint64_t id = 0; id < POLLED; id++) {
        struct ibv_sge sge = part(&p.a, 0, 8);
        struct ibv_send_wr wr = request(reads(id) ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, &p, &sge, 1, id);
        int error;
        while ((error = post(p.qp, &wr)) == ENOMEM) {}
        CHECK(!error, "request %lu: %s", (unsigned long)id, strerror(error));
    }
    for (int i = 0; i < READERS; i++) NEED(!pthread_join(threads[i], NULL));
    CHECK(taken == POLLED, "%d completions of %d requests", taken, POLLED);
}
