/* Execution of send requests: the checks of both cards, the copy, the completions, and the errors. */
#include "direct.h"

enum { PIECE = 64 << 10 }; /* bytes copied at once: the bounce buffer stays in the cache */
enum { FLUSHED = 64 }; /* requests in one step */
enum { LOOK_NS = 100000 }; /* until the next look at a completion queue that the program may have polled */
enum { SMALL = 1024, MANY = 4 }; /* bytes of requests whose data is read ahead, if this number is posted */

static const uint32_t COMPLETION[] = {
    [IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE, [IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE,
    [IBV_WR_SEND] = IBV_WC_SEND, [IBV_WR_SEND_WITH_IMM] = IBV_WC_SEND, [IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ,
    [IBV_WR_ATOMIC_CMP_AND_SWP] = IBV_WC_COMP_SWAP, [IBV_WR_ATOMIC_FETCH_AND_ADD] = IBV_WC_FETCH_ADD };

static int is_send(const struct request *r) { return r->opcode == IBV_WR_SEND || r->opcode == IBV_WR_SEND_WITH_IMM; }
static int is_atomic(const struct request *r) { return r->opcode >= IBV_WR_ATOMIC_CMP_AND_SWP; }
static int has_imm(const struct request *r) {
    return r->opcode == IBV_WR_SEND_WITH_IMM || r->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}
static int consumes(const struct request *r) { return is_send(r) || r->opcode == IBV_WR_RDMA_WRITE_WITH_IMM; }

/* Retire the oldest send request, and complete it. */
static void complete_send(struct qp *qp, enum ibv_wc_status status) {
    struct request *r = &qp->now;
    int reports = status != IBV_WC_SUCCESS || r->flags & IBV_SEND_SIGNALED;
    qp->reported[qp->sends.own & (qp->sends.slots - 1)] = (struct reported){ qp->send_cq->ring.own + 1, reports };
    qp->busy = 0;
    qp->waiting = NOT_WAITING;
    ring_took(&qp->sends);
    if (!reports) return;
    push(qp->send_cq, &(struct weft_wc_slot){ .wr_id = r->wr_id, .status = status, .opcode = COMPLETION[r->opcode],
        .byte_len = (uint32_t)r->local.length, .qp_num = qp->number }, 0);
}

static void complete_receive(struct qp *qp, uint64_t wr_id, enum ibv_wc_status status, const struct request *r) {
    struct weft_wc_slot wc = { .wr_id = wr_id, .status = status, .opcode = IBV_WC_RECV, .qp_num = qp->number };
    if (r) {
        wc.byte_len = (uint32_t)r->local.length;
        if (r->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) wc.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
        if (has_imm(r)) wc.imm_data = r->imm, wc.wc_flags = IBV_WC_WITH_IMM;
    }
    push(qp->recv_cq, &wc, r && r->flags & IBV_SEND_SOLICITED);
}

/* Flush what is posted to a QP in ERR or SQE, or posted too early, but not more at once than FLUSHED requests: a
 * program may post without end. Return AGAIN if some are left. */
enum turn flush(struct qp *qp) {
    int left = FLUSHED;
    for (; qp->busy || ring_filled(&qp->sends, qp->client); left--) {
        if (!left) return AGAIN;
        if (!qp->busy && !take_send(qp, &qp->now)) return IDLE;
        complete_send(qp, IBV_WC_WR_FLUSH_ERR);
    }
    if (!qp->error) return IDLE;
    if (qp->taken) {
        qp->taken = 0;
        complete_receive(qp, qp->receive_wr_id, qp->of_receive, NULL);
    }
    if (qp->receives == &qp->own) {
        for (uint64_t wr_id; take_receive(&qp->own, &wr_id, &qp->receive);) {
            complete_receive(qp, wr_id, IBV_WC_WR_FLUSH_ERR, NULL);
            if (--left < 0) return AGAIN;
        }
    } else if (!qp->last_wqe) {
        qp->last_wqe = 1;
        notice(qp->client->host->fabric, qp->tag, OF_QP, IBV_EVENT_QP_LAST_WQE_REACHED);
    }
    return IDLE;
}

/* Move a QP to ERR. All of its requests are flushed by the next turns. QPs that wait for this one look at it again. */
void enter_error(struct qp *qp) {
    if (qp->error) return;
    qp->error = qp->client->flushes = 1;
    qp->draining = 0;
    qp->of_receive = IBV_WC_WR_FLUSH_ERR;
    qp->client->host->fabric->changed = 1;
    activate(qp);
}

/* Move a QP to ERR: its oldest request completes with a status, all others are flushed. Return 0. */
static int fail_with(struct qp *qp, enum ibv_wc_status status, enum ibv_wc_status of_receive) {
    if (qp->error) return 0;
    enter_error(qp);
    qp->of_receive = of_receive;
    if (!qp->busy && ring_filled(&qp->sends, qp->client)) qp->busy = take_send(qp, &qp->now);
    if (qp->busy) complete_send(qp, status);
    flush(qp);
    report_news(qp->client);
    return 0;
}

int fail(struct qp *qp, enum ibv_wc_status status) { return fail_with(qp, status, IBV_WC_WR_FLUSH_ERR); }

/* End a drain: no request is begun and not complete. */
void drained(struct qp *qp) {
    if (!qp->draining) return;
    qp->draining = 0;
    if (qp->notify_drained) notice(qp->client->host->fabric, qp->tag, OF_QP, IBV_EVENT_SQ_DRAINED);
}

/* Return the status of a request that its own card refuses, or success. */
static enum ibv_wc_status check(const struct qp *qp, const struct request *r) {
    if (r->refused) return r->refused;
    if (r->opcode < IBV_WR_RDMA_READ) {
        int allowed = parts_allowed(qp->client->host, qp->pd, &r->local, r->local.length, 0);
        return allowed ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR;
    }
    if (!qp->attr.max_rd_atomic) return IBV_WC_LOC_QP_OP_ERR;
    if (!parts_allowed(qp->client->host, qp->pd, &r->local, r->local.length, IBV_ACCESS_LOCAL_WRITE))
        return IBV_WC_LOC_PROT_ERR;
    return is_atomic(r) && r->local.length != sizeof(uint64_t) ? IBV_WC_LOC_LEN_ERR : IBV_WC_SUCCESS;
}

/* Return the peer if it receives, and expects the next message of this QP, or NULL: it does not answer. */
static struct qp *peer_of(const struct qp *qp) {
    struct host *host = qp->peer_host;
    struct qp *peer = host ? host->qps[qp->attr.peer_qpn & host->qp_mask] : NULL;
    if (!peer || peer->number != qp->attr.peer_qpn || peer->client->dead || peer->error
        || peer->attr.state < IBV_QPS_RTR || peer->peer_host != qp->client->host || peer->attr.peer_qpn != qp->number
        || peer->expected_psn != qp->send_psn) return NULL;
    return peer;
}

static uint32_t needed(const struct request *r) {
    return is_atomic(r) ? IBV_ACCESS_REMOTE_ATOMIC
         : r->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
}

static struct region *remote_of(const struct qp *peer, const struct request *r, uint64_t at, uint64_t length) {
    return region_at(peer->client->host, 0, peer->pd, r->remote_addr + at, length, r->rkey, needed(r));
}

/* Return true if a request is for data of a program that has ended: the daemon does not know it yet. */
static int has_ended(const struct qp *peer, const struct request *r) {
    const struct region *region = r->opcode < IBV_WR_RDMA_READ || !r->local.length ? NULL
                                  : remote_of(peer, r, 0, r->local.length);
    return region && region->gone;
}

enum verdict { REJECTED, ADMITTED, NOT_READY };

/* Let the peer reject the request: it raises an event and enters ERR, and the request fails with `status`. */
static enum verdict reject(struct qp *qp, struct qp *peer, enum ibv_wc_status status, enum ibv_wc_status of_receive) {
    notice(peer->client->host->fabric, peer->tag, OF_QP, status == IBV_WC_REM_ACCESS_ERR ? IBV_EVENT_QP_ACCESS_ERR
           : status == IBV_WC_REM_INV_REQ_ERR ? IBV_EVENT_QP_REQ_ERR : IBV_EVENT_QP_FATAL);
    fail_with(peer, IBV_WC_WR_FLUSH_ERR, of_receive);
    fail(qp, status);
    return REJECTED;
}

/* Check a request at the peer, and consume a receive request of it. */
static enum verdict admit(struct qp *qp, struct qp *peer, struct request *r) {
    if (!peer->heard) {
        peer->heard = 1;
        if (peer->attr.state == IBV_QPS_RTR) notice(peer->client->host->fabric, peer->tag, OF_QP, IBV_EVENT_COMM_EST);
    }
    if (!is_send(r)) {
        int fetches = r->opcode >= IBV_WR_RDMA_READ;
        if ((fetches && !peer->attr.max_dest_rd_atomic) || (is_atomic(r) && r->remote_addr % sizeof(uint64_t)))
            return reject(qp, peer, IBV_WC_REM_INV_REQ_ERR, IBV_WC_WR_FLUSH_ERR);
        if (needed(r) & ~peer->attr.access || (r->local.length && !remote_of(peer, r, 0, r->local.length)))
            return reject(qp, peer, IBV_WC_REM_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR);
    }
    if (!consumes(r)) return ADMITTED;
    if (!peer->taken) peer->taken = take_receive(peer->receives, &peer->receive_wr_id, &peer->receive);
    if (!peer->taken) return NOT_READY;
    if (!is_send(r)) return ADMITTED;
    if (r->local.length > peer->receive.length)
        return reject(qp, peer, IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_LEN_ERR);
    if (!parts_allowed(peer->client->host, peer->pd, &peer->receive, r->local.length, IBV_ACCESS_LOCAL_WRITE))
        return reject(qp, peer, IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR);
    return ADMITTED;
}

/* Return the data of a small request if it was read together with that of another one, or can be: a program does not
 * change it from the post to the completion. NULL: it has to be read alone. */
const uint8_t *read_ahead(struct qp *qp, const struct request *r) {
    struct window *window = &qp->client->host->fabric->window;
    const struct part *part = &r->local.part[0];
    uint32_t posted = ring_filled(&qp->sends, qp->client);
    if (r->local.count != 1 || part->length > SMALL) return NULL;
    struct region *region = region_at(qp->client->host, 1, qp->pd, part->va, part->length, part->key, 0);
    if (!region) return NULL;
    if (window->qp != qp || window->region != region || part->va < window->va
        || part->va - window->va + part->length > window->length || (int32_t)(window->until - qp->sends.own) <= 0) {
        uint64_t to_page = WINDOW - part->va % WINDOW, to_end = region->va + region->length - part->va;
        size_t length = to_page < to_end ? to_page : to_end;
        window->qp = NULL;
        if (posted < MANY || length < 2 * part->length || copy_range(region, part->va, window->data, length, 0) != DONE)
            return NULL;
        window->qp = qp;
        window->region = region;
        window->va = part->va;
        window->length = length;
        window->until = qp->sends.own + posted;
    }
    return window->data + (part->va - window->va);
}

/* Copy the data of a small write together with that of the writes that continue it. Return true if the data of this
 * write is copied: now, or with an earlier one. */
static int merge(struct qp *qp, struct qp *peer, const struct request *r) {
    struct host *own = qp->client->host;
    struct merged *last = &own->fabric->merged;
    const struct part *part = &r->local.part[0];
    uint64_t further = (uint64_t)(qp->sends.own - last->first) * last->length;
    if (last->qp == qp && (int32_t)(last->until - qp->sends.own) > 0 && part->length == last->length
        && part->key == last->lkey && r->rkey == last->rkey && part->va == last->local + further
        && r->remote_addr == last->remote + further) return 1;
    uint32_t posted = ring_filled(&qp->sends, qp->client), count = 1;
    last->qp = NULL;
    while (count < posted && (count + 1) * part->length <= PIECE && continues(qp, r, count)) count++;
    uint64_t length = (uint64_t)count * part->length;
    struct region *from = region_at(own, 1, qp->pd, part->va, length, part->key, 0), *to = remote_of(peer, r, 0, length);
    if (count == 1 || !from || !to || copy_range(from, part->va, own->fabric->bounce, length, 0) != DONE) return 0;
    copy_range(to, r->remote_addr, own->fabric->bounce, length, 1);
    *last = (struct merged){ .qp = qp, .first = qp->sends.own, .until = qp->sends.own + count, .length = part->length,
                             .lkey = part->key, .rkey = r->rkey, .local = part->va, .remote = r->remote_addr };
    return 1;
}

/* Copy the next bytes of a request; return 0 if that failed, and both QPs know, or if the peer has ended. */
static int copy(struct qp *qp, struct qp *peer, struct request *r, size_t length) {
    struct host *own = qp->client->host, *other = peer->client->host;
    const uint8_t *data = own->fabric->bounce, *ahead;
    uint8_t *bounce = own->fabric->bounce;
    struct region *remote = is_send(r) ? NULL : remote_of(peer, r, r->done, length);
    if (!is_send(r) && !remote) /* deregistered meanwhile */
        return reject(qp, peer, IBV_WC_REM_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR);
    if (r->opcode == IBV_WR_RDMA_WRITE && r->local.count == 1 && length <= SMALL && merge(qp, peer, r)) return 1;
    if (r->opcode == IBV_WR_RDMA_READ) {
        own->fabric->window.qp = NULL;
        if (copy_range(remote, r->remote_addr + r->done, bounce, length, 0) != DONE) {
            if (remote->gone) return 0;
            fail(peer, IBV_WC_LOC_QP_OP_ERR);
            return fail(qp, IBV_WC_REM_OP_ERR);
        }
        return copy_list(own, qp->pd, &r->local, r->done, data, length, 1) == DONE || fail(qp, IBV_WC_LOC_PROT_ERR);
    }
    if (r->inline_length) data = r->inlined + r->done;
    else if ((ahead = read_ahead(qp, r))) data = ahead;
    else {
        enum access found = copy_list(own, qp->pd, &r->local, r->done, bounce, length, 0);
        if (found != DONE) return fail(qp, found == DENIED ? IBV_WC_LOC_PROT_ERR : IBV_WC_LOC_QP_OP_ERR);
    }
    if (remote) copy_range(remote, r->remote_addr + r->done, data, length, 1);
    else if (copy_list(other, peer->pd, &peer->receive, r->done, data, length, 1) != DONE)
        return reject(qp, peer, IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR);
    return 1;
}

/* Execute an atomic; return 0 as copy() does. */
static int modify(struct qp *qp, struct qp *peer, struct request *r) {
    struct region *remote = remote_of(peer, r, 0, sizeof(uint64_t));
    uint64_t old, new;
    qp->client->host->fabric->window.qp = NULL;
    if (!remote || copy_range(remote, r->remote_addr, &old, sizeof old, 0) != DONE)
        return remote && remote->gone ? 0 : (int)reject(qp, peer, IBV_WC_REM_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR);
    if (r->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) new = old + r->compare_add;
    else new = old == r->compare_add ? r->swap : old;
    copy_range(remote, r->remote_addr, &new, sizeof new, 1);
    if (copy_list(qp->client->host, qp->pd, &r->local, 0, &old, sizeof old, 1) != DONE)
        return fail(qp, IBV_WC_LOC_PROT_ERR);
    r->done = sizeof old;
    return 1;
}

/* Wait for the peer, or for a receive request of it. Return IDLE if the time is over, and the request has failed. */
static enum turn wait_for(struct qp *qp, struct qp *peer) {
    int kind = peer ? FOR_RECEIVE : FOR_PEER;
    const struct attributes *a = &qp->attr;
    if (qp->waiting != kind) {
        const uint32_t forever = 7;
        uint64_t for_ns = peer ? peer->attr.rnr_ns * a->rnr_retry : a->timeout_ns * (a->retry_cnt + 1);
        qp->waiting = kind;
        qp->deadline = (peer ? a->rnr_retry == forever : !a->timeout_ns) ? UINT64_MAX : now_ns() + for_ns;
    }
    if (qp->deadline == UINT64_MAX || now_ns() < qp->deadline) return STALLED;
    fail(qp, peer ? IBV_WC_RNR_RETRY_EXC_ERR : IBV_WC_RETRY_EXC_ERR);
    return IDLE;
}

/* Return true if the program has polled the completion of the request `max_send_wr` before the next one. Until a program
 * polls it, a request takes part of the queue's capacity on other devices, so that a CQ of that capacity is not overrun. */
static int polled(const struct qp *qp) {
    const struct reported *last = &qp->reported[(qp->sends.own - qp->max_send_wr) & (qp->sends.slots - 1)];
    return !last->there || (int32_t)(LOAD(qp->send_cq->ring.head->cons) - last->index) >= 0 || qp->send_cq->overrun;
}

/* Carry out the datagram that a QP begins. After a local error its send queue is in SQE, and is flushed. */
static enum turn step_datagram(struct qp *qp, size_t *budget) {
    struct request *r = &qp->now;
    enum ibv_wc_status status = send_datagram(qp, r);
    if (qp->error || qp->client->dead) return IDLE; /* it overran a queue of this QP, or the QP cannot receive it */
    size_t cost = r->local.length + r->done;
    *budget -= cost < *budget ? cost : *budget;
    if (status == IBV_WC_SUCCESS) {
        count(&qp->client->host->sent, r->local.length);
        complete_send(qp, status);
        return AGAIN;
    }
    qp->send_error = 1;
    complete_send(qp, status);
    return flush(qp);
}

/* Do the next step of a QP; `budget` is the number of bytes that may be copied. */
static enum turn step(struct qp *qp, size_t *budget) {
    struct request *r = &qp->now;
    if (qp->error || qp->send_error || qp->attr.state < IBV_QPS_RTS) return flush(qp);
    if (!qp->busy) {
        if (qp->attr.state == IBV_QPS_SQD || !ring_filled(&qp->sends, qp->client)) return IDLE;
        if (!polled(qp)) {
            qp->waiting = FOR_POLL;
            qp->deadline = now_ns() + LOOK_NS;
            return STALLED;
        }
        if (!take_send(qp, r)) return IDLE;
        qp->busy = 1;
    }
    if (qp->payload_max) return step_datagram(qp, budget);
    if (!r->checked) {
        enum ibv_wc_status status = check(qp, r);
        if (status != IBV_WC_SUCCESS) {
            fail(qp, status);
            return IDLE;
        }
        r->checked = 1;
    }
    struct qp *peer = peer_of(qp);
    if (!peer || has_ended(peer, r)) return wait_for(qp, NULL);
    if (!r->admitted || !peer->heard) { /* the latter: the peer was reset during the message */
        r->done = 0;
        enum verdict verdict = admit(qp, peer, r);
        if (verdict == REJECTED) return IDLE;
        if (verdict == NOT_READY) return wait_for(qp, peer);
        r->admitted = 1;
    }
    qp->waiting = NOT_WAITING;
    if (is_atomic(r)) {
        if (!modify(qp, peer, r)) return qp->error ? IDLE : AGAIN;
    } else if (r->done < r->local.length) {
        size_t left = r->local.length - r->done, length = left < PIECE ? left : PIECE;
        if (!copy(qp, peer, r, length)) return qp->error ? IDLE : AGAIN;
        r->done += length;
        *budget -= length < *budget ? length : *budget;
        if (length < left) return AGAIN;
    }
    const struct qp *from = r->opcode < IBV_WR_RDMA_READ ? qp : peer; /* of the data */
    count(&from->client->host->sent, r->local.length);
    count(&(from == qp ? peer : qp)->client->host->received, r->local.length);
    qp->send_psn = peer->expected_psn = (qp->send_psn + 1) & 0xFFFFFF;
    if (consumes(r)) {
        peer->taken = 0;
        complete_receive(peer, peer->receive_wr_id, IBV_WC_SUCCESS, r);
        if (qp->error) return IDLE; /* that overran a queue of this QP too: the request is flushed */
    }
    complete_send(qp, IBV_WC_SUCCESS);
    if (qp->attr.state == IBV_QPS_SQD) drained(qp);
    return AGAIN;
}

/* Execute requests of a QP while there are any and the budget lasts. */
enum turn execute(struct qp *qp, size_t *budget) {
    enum turn turn = AGAIN;
    struct host *peer_host = qp->peer_host;
    while (turn == AGAIN && *budget && !qp->client->dead) {
        *budget -= *budget < 1024 ? *budget : 1024; /* a request counts as the copy of 1 KiB */
        turn = step(qp, budget);
    }
    struct qp *peer = peer_host ? peer_host->qps[qp->attr.peer_qpn & peer_host->qp_mask] : NULL;
    if (peer) report_news(peer->client); /* first: it may wait for the message, this one for its end alone */
    report_news(qp->client);
    if (qp->payload_max)
        for (struct client *client = qp->client->host->fabric->clients; client; client = client->next)
            report_news(client);
    return qp->client->dead ? IDLE : turn;
}
