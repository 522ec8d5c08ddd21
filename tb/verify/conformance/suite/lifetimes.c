/* Creation and destruction: limits, objects in use, outstanding requests, repetition. */
#include "suite.h"

CASE(objects_in_use_are_not_destroyed, "ibv_dealloc_pd(3), ibv_destroy_cq(3): EBUSY while others use the object") {
    struct pair p = connected(HOW);
    CHECK(ibv_destroy_cq(p.a.cq) == EBUSY, "a CQ with a QP is not EBUSY");
    CHECK(ibv_dealloc_pd(p.a.pd) == EBUSY, "a PD with a QP is not EBUSY");
    NEED(!ibv_destroy_qp(p.qp));
    CHECK(ibv_dealloc_pd(p.a.pd) == EBUSY, "a PD with a region is not EBUSY");
    NEED(!ibv_dereg_mr(p.a.mr) && !ibv_destroy_cq(p.a.cq));
    CHECK(!ibv_dealloc_pd(p.a.pd), "an unused PD is not deallocated");
    CHECK(!ibv_close_device(p.a.context), "a device without objects is not closed");
}

CASE(channel_in_use_is_not_destroyed, "ibv_destroy_comp_channel(3): EBUSY while CQs use it") {
    struct pair p = ends();
    struct ibv_comp_channel *channel = ibv_create_comp_channel(p.a.context);
    NEED(channel);
    struct ibv_cq *cq = ibv_create_cq(p.a.context, 10, NULL, channel, 0);
    NEED(cq);
    CHECK(ibv_destroy_comp_channel(channel) == EBUSY, "a channel with a CQ is not EBUSY");
    NEED(!ibv_destroy_cq(cq));
    CHECK(!ibv_destroy_comp_channel(channel), "an unused channel is not destroyed");
}

CASE(qp_with_requests_is_destroyed, "IBTA 10.2.4: a QP may be destroyed in any state; outstanding requests end") {
    for (int round = 0; round < 5; round++) {
        struct pair p = connected(HOW);
        struct ibv_sge sge = part(&p.a, 0, 60000);
        for (uint64_t id = 1; id <= 30; id++) {
            struct ibv_send_wr wr = request(id % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, &p, &sge, 1, id);
            NEED(!post(p.qp, &wr));
            NEED(!give(p.qp, &sge, 1, id));
        }
        CHECK(!ibv_destroy_qp(p.qp), "the requester: %s", strerror(errno));
        CHECK(!ibv_destroy_qp(p.peer), "the responder: %s", strerror(errno));
        CHECK(!ibv_destroy_cq(p.a.cq) && !ibv_dereg_mr(p.a.mr) && !ibv_dealloc_pd(p.a.pd), "an object is in use");
        CHECK(!ibv_close_device(p.a.context), "the context is not closed");
    }
}

CASE(region_in_transfer_is_deregistered, "IBTA 10.6: after deregistration the device does not access the region") {
    struct pair p = connected(HOW);
    enum { LENGTH = 300001 };
    unsigned char *to = calloc(1, LENGTH), *from = malloc(LENGTH);
    struct ibv_mr *into = ibv_reg_mr(p.b.pd, to, LENGTH, EVERYTHING);
    struct ibv_mr *mr = ibv_reg_mr(p.a.pd, from, LENGTH, EVERYTHING);
    NEED(into && mr);
    memset(from, 0x22, LENGTH);
    struct ibv_sge sge = { (uintptr_t)from, LENGTH, mr->lkey };
    struct ibv_send_wr wr = write_of(&p, &sge, 1, IBV_SEND_SIGNALED);
    wr.wr.rdma.remote_addr = (uintptr_t)to;
    wr.wr.rdma.rkey = into->rkey;
    NEED(!post(p.qp, &wr));
    NEED(!ibv_dereg_mr(into));
    memset(to, 0x33, LENGTH);
    struct ibv_wc wc = done(p.a.cq);
    CHECK(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_REM_ACCESS_ERR, "the write completes with '%s'",
          ibv_wc_status_str(wc.status));
    settle(&p);
    CHECK(all(to, LENGTH, 0x33), "the region is written after its deregistration");
}

/* Return a number of repetitions that exceeds the device's limit, if that is not large. */
static int turns(int limit) { return limit < 300 ? limit + 1 : 100; }

CASE(many_qps_in_turn, "IBTA 10.2.4: destroyed QPs keep no resources") {
    struct pair p = ends();
    struct ibv_device_attr limits;
    NEED(!ibv_query_device(p.a.context, &limits));
    for (int i = 0; i < turns(limits.max_qp); i++) {
        struct ibv_qp_init_attr init = rc(&p.a);
        struct ibv_qp *qp = ibv_create_qp(p.a.pd, &init);
        CHECK(qp, "QP %d: %s", i, strerror(errno));
        NEED(!ibv_destroy_qp(qp));
    }
}

CASE(many_regions_in_turn, "IBTA 10.6: deregistered regions keep no resources") {
    struct pair p = ends();
    struct ibv_device_attr limits;
    NEED(!ibv_query_device(p.a.context, &limits));
    for (int i = 0; i < turns(limits.max_mr); i++) {
        struct ibv_mr *mr = ibv_reg_mr(p.a.pd, p.a.memory, MEMORY, EVERYTHING);
        CHECK(mr, "region %d: %s", i, strerror(errno));
        NEED(!ibv_dereg_mr(mr));
    }
}

CASE(many_connections_in_turn,
     "IBTA 10.2.4, 9.7.1: a new connection is independent of earlier ones with the same peer") {
    struct pair p = ends();
    for (uint64_t round = 1; round <= 10; round++) {
        p.qp = make_qp(&p.a, rc(&p.a));
        p.peer = make_qp(&p.b, rc(&p.b));
        join(&p.a, p.qp, &p.b, p.peer, HOW);
        struct ibv_sge sge = part(&p.a, 0, 2000);
        struct ibv_send_wr wr = write_of(&p, &sge, round, IBV_SEND_SIGNALED);
        fill(p.a.memory, 2000, (unsigned)round);
        NEED(!post(p.qp, &wr));
        succeeds(p.a.cq, round);
        CHECK(filled(p.b.memory, 2000, (unsigned)round), "the data of connection %lu differs", (unsigned long)round);
        NEED(!ibv_destroy_qp(p.qp) && !ibv_destroy_qp(p.peer));
    }
}

CASE(capacities_beyond_limits_are_refused,
     "ibv_create_qp(3), ibv_query_device(3): EINVAL or ENOMEM beyond max_qp_wr and max_sge") {
    struct pair p = ends();
    struct ibv_device_attr limits;
    NEED(!ibv_query_device(p.a.context, &limits));
    for (int i = 0; i < 3; i++) {
        struct ibv_qp_init_attr init = rc(&p.a);
        if (i == 0) init.cap.max_send_wr = (uint32_t)limits.max_qp_wr + 1;
        if (i == 1) init.cap.max_recv_wr = (uint32_t)limits.max_qp_wr + 1;
        if (i == 2) /* max_sge is the smaller limit of sends and receives */
            init.cap.max_send_sge = init.cap.max_recv_sge = (uint32_t)limits.max_sge + 1;
        struct ibv_qp *qp = ibv_create_qp(p.a.pd, &init);
        CHECK(!qp && (errno == EINVAL || errno == ENOMEM), "capacity %d beyond the limit: %s", i, strerror(errno));
    }
}

CASE(capacities_at_limits_are_accepted, "ibv_query_device(3): a QP with max_sge SGEs can be created and used") {
    struct pair p = ends();
    struct ibv_device_attr limits;
    NEED(!ibv_query_device(p.a.context, &limits));
    LACKS(limits.max_sge > 128, "max_sge is %d", limits.max_sge);
    struct ibv_qp_init_attr init = rc(&p.a), far = rc(&p.b);
    init.cap = (struct ibv_qp_cap){ 4, 4, (uint32_t)limits.max_sge, (uint32_t)limits.max_sge, 0 };
    p.qp = make_qp(&p.a, init);
    p.peer = make_qp(&p.b, far);
    join(&p.a, p.qp, &p.b, p.peer, HOW);
    struct ibv_sge sges[128];
    for (int i = 0; i < limits.max_sge; i++) sges[i] = part(&p.a, (size_t)i * 100, 30 + (size_t)i);
    struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &p, sges, limits.max_sge, 1);
    fill(p.a.memory, MEMORY, 7);
    NEED(!post(p.qp, &wr));
    succeeds(p.a.cq, 1);
    for (size_t i = 0, at = 0; i < (size_t)limits.max_sge; at += 30 + i++)
        CHECK(!memcmp(p.b.memory + at, p.a.memory + i * 100, 30 + i), "SGE %zu differs", i);
}

CASE(indices_beyond_tables_are_refused,
     "ibv_query_port(3), ibv_query_gid(3), ibv_query_pkey(3): an index beyond the table") {
    struct pair p = ends();
    struct ibv_port_attr port;
    union ibv_gid gid;
    __be16 pkey;
    CHECK(ibv_query_port(p.a.context, 200, &port), "port 200 exists");
    NEED(!ibv_query_port(p.a.context, 1, &port));
    CHECK(ibv_query_gid(p.a.context, 1, port.gid_tbl_len, &gid), "a GID beyond the table exists");
    CHECK(ibv_query_pkey(p.a.context, 1, port.pkey_tbl_len, &pkey), "a P_Key beyond the table exists");
    CHECK(!ibv_query_pkey(p.a.context, 1, 0, &pkey) && (be16toh(pkey) & 0x7FFF) == 0x7FFF,
          "P_Key 0 is not the default one");
}
