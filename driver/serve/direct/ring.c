/* Rings that programs share: work requests are taken from them, completions are put into them. */
#include "direct.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* Report news of an object to the daemon. Without memory for the notice, the daemon learns nothing: it has to end then. */
void notice(struct fabric *fabric, uint64_t tag, uint32_t kind, uint32_t event) {
    if (fabric->notice_count == fabric->notice_room) {
        size_t room = fabric->notice_room ? 2 * fabric->notice_room : 64;
        struct notice *more = realloc(fabric->notices, room * sizeof *more);
        if (!more) abort();
        fabric->notices = more;
        fabric->notice_room = room;
    }
    fabric->notices[fabric->notice_count++] = (struct notice){ .tag = tag, .kind = kind, .event = event };
    eventfd_write(fabric->news, 1);
}

/* Serve a client no longer, for a reason. */
void violated(struct client *client, const char *format, ...) {
    if (client->dead) return;
    va_list values;
    va_start(values, format);
    vsnprintf(client->why, sizeof client->why, format, values);
    va_end(values);
    client->dead = 1;
    notice(client->host->fabric, client->tag, VIOLATED, 0);
}

/* Access a region no longer: its address space is gone. Other regions of the client may be in another process. */
void ended(struct region *region) {
    region->gone = 1;
    notice(region->client->host->fabric, region->client->tag, ENDED, 0);
}

/* Return the number of slots that the program filled and this side has not taken, 0 after a violation. */
uint32_t ring_filled(const struct ring *ring, struct client *client) {
    if (client->dead) return 0;
    uint32_t count = LOAD(ring->head->prod) - ring->own;
    if (count <= ring->slots) return count;
    violated(client, "a ring of %u slots has %u filled ones", ring->slots, count);
    return 0;
}

const void *ring_slot(const struct ring *ring, uint32_t number) {
    return ring->first + (size_t)(number & (ring->slots - 1)) * ring->slot_bytes;
}

/* Retire the oldest slot: the program may refill it. */
void ring_took(struct ring *ring) {
    ring->own++;
    STORE(ring->head->cons, ring->own);
    STORE(ring->head->done, ring->own);
}

static void take_sges(struct parts *parts, const void *from, uint32_t count) {
    struct weft_sge_slot sges[SGES_MAX];
    memcpy(sges, from, count * sizeof *sges);
    COPIED();
    parts->count = count;
    parts->length = 0;
    for (uint32_t n = 0; n < count; n++) {
        parts->part[n] = (struct part){ .va = sges[n].addr, .length = sges[n].length, .key = sges[n].lkey };
        parts->length += sges[n].length;
    }
}

/* Return true if an entry ends beyond the last address. */
static int wraps(const struct parts *parts) {
    for (uint32_t n = 0; n < parts->count; n++)
        if (parts->part[n].length && parts->part[n].va + (parts->part[n].length - 1) < parts->part[n].va) return 1;
    return 0;
}

/* Copy the oldest send request, which stays in its slot until ring_took(). Return 0 after a violation. */
int take_send(struct qp *qp, struct request *r) {
    const uint8_t *at = ring_slot(&qp->sends, qp->sends.own);
    struct weft_send_slot slot;
    memcpy(&slot, at, sizeof slot);
    COPIED();
    int addressed = slot.opcode != IBV_WR_SEND && slot.opcode != IBV_WR_SEND_WITH_IMM;
    if (slot.opcode > IBV_WR_ATOMIC_FETCH_AND_ADD || (qp->payload_max && addressed)
        || slot.num_sge > qp->max_send_sge || slot.inline_length > qp->max_inline) {
        violated(qp->client, "opcode %u with %u SGEs and %u bytes inline", slot.opcode, slot.num_sge,
                 slot.inline_length);
        return 0;
    }
    int fetches = slot.opcode >= IBV_WR_RDMA_READ, is_inline = slot.flags & IBV_SEND_INLINE && !fetches;
    r->wr_id = slot.wr_id;
    r->remote_addr = slot.remote_addr;
    r->compare_add = slot.compare_add;
    r->swap = slot.swap;
    r->rkey = slot.rkey;
    r->imm = slot.imm_data;
    r->opcode = slot.opcode;
    r->flags = slot.flags;
    r->done = 0;
    r->refused = r->checked = r->admitted = 0;
    r->inline_length = 0;
    if (is_inline) {
        r->inline_length = slot.inline_length;
        memcpy(r->inlined, at + sizeof slot, slot.inline_length);
        r->local = (struct parts){ .length = slot.inline_length };
    } else take_sges(&r->local, at + sizeof slot, slot.num_sge);
    if ((fetches && slot.flags & IBV_SEND_INLINE) || r->local.length > 1ull << 31 || wraps(&r->local)
        || (addressed && r->local.length && r->remote_addr + (r->local.length - 1) < r->remote_addr)) {
        r->refused = IBV_WC_LOC_LEN_ERR;
        r->local = (struct parts){ 0 };
    }
    return 1;
}

/* Return true if a later request in the ring, `ahead` of the oldest one `r`, writes what follows the bytes of `r` and
 * of those between to what follows there. */
int continues(const struct qp *qp, const struct request *r, uint32_t ahead) {
    const uint8_t *at = ring_slot(&qp->sends, qp->sends.own + ahead);
    const struct part *part = &r->local.part[0];
    struct weft_send_slot slot;
    struct weft_sge_slot sge;
    memcpy(&slot, at, sizeof slot);
    memcpy(&sge, at + sizeof slot, sizeof sge);
    COPIED();
    uint64_t further = (uint64_t)ahead * part->length;
    return slot.opcode == IBV_WR_RDMA_WRITE && slot.num_sge == 1 && !(slot.flags & (IBV_SEND_INLINE | IBV_SEND_FENCE))
        && slot.rkey == r->rkey && slot.remote_addr == r->remote_addr + further && sge.length == part->length
        && sge.lkey == part->key && sge.addr == part->va + further;
}

/* Copy the oldest receive request; return the number of requests, 0 if there is none. */
uint32_t look_at_receive(struct receives *receives, uint64_t *wr_id, struct parts *parts) {
    uint32_t filled = ring_filled(&receives->ring, receives->client);
    if (!filled) return 0;
    const uint8_t *at = ring_slot(&receives->ring, receives->ring.own);
    struct weft_recv_slot slot;
    memcpy(&slot, at, sizeof slot);
    COPIED();
    if (slot.num_sge > receives->sges) {
        violated(receives->client, "%u SGEs in a slot for %u", slot.num_sge, receives->sges);
        return 0;
    }
    *wr_id = slot.wr_id;
    take_sges(parts, at + sizeof slot, slot.num_sge);
    return filled;
}

/* Consume the oldest of `filled` receive requests. */
void took_receive(struct receives *receives, uint32_t filled) {
    ring_took(&receives->ring);
    if (filled - 1 < receives->limit) {
        receives->limit = 0;
        notice(receives->client->host->fabric, receives->tag, OF_SRQ, IBV_EVENT_SRQ_LIMIT_REACHED);
    }
}

/* Copy and consume the oldest receive request; return 0 if there is none. */
int take_receive(struct receives *receives, uint64_t *wr_id, struct parts *parts) {
    uint32_t filled = look_at_receive(receives, wr_id, parts);
    if (filled) took_receive(receives, filled);
    return filled > 0;
}

static void signal_cq(struct cq *cq, uint32_t armed) {
    struct weft_comp_event event = { .user = cq->user };
    cq->done = armed;
    STORE(cq->ring.head->done, armed);
    if (cq->channel >= 0 && send(cq->channel, &event, sizeof event, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        notice(cq->client->host->fabric, cq->tag, OF_CHANNEL, 0); /* the daemon keeps it for a slow reader */
}

static void overrun(struct cq *cq) {
    if (cq->overrun) return;
    cq->overrun = 1;
    notice(cq->client->host->fabric, cq->tag, OF_CQ, IBV_EVENT_CQ_ERR);
    signal_cq(cq, LOAD(cq->ring.head->armed));
    for (struct qp *qp = cq->client->qps; qp; qp = qp->next)
        if (qp->send_cq == cq || qp->recv_cq == cq) enter_error(qp);
}

/* Put a completion into a queue, with an event if the program asked for one. */
void push(struct cq *cq, const struct weft_wc_slot *wc, int solicited) {
    struct ring *ring = &cq->ring;
    if (cq->client->dead) return;
    uint32_t waiting = ring->own - LOAD(ring->head->cons);
    if (waiting > ring->slots) {
        violated(cq->client, "a ring of %u slots has %u filled ones", ring->slots, waiting);
        return;
    }
    if (cq->overrun || waiting == ring->slots) {
        overrun(cq);
        return;
    }
    memcpy((void *)(uintptr_t)ring_slot(ring, ring->own), wc, sizeof *wc);
    ring->own++;
    STORE(ring->head->prod, ring->own);
    cq->client->has_news = 1;
    FENCE();
    uint32_t armed = LOAD(ring->head->armed);
    if (armed != cq->done && (!(armed & 1) || solicited || wc->status != IBV_WC_SUCCESS)) signal_cq(cq, armed);
}

/* Report completions to a program that may sleep. */
void report_news(struct client *client) {
    if (!client->has_news) return;
    client->has_news = 0;
    __atomic_add_fetch(&client->bell->notified, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&client->bell->waiting, __ATOMIC_SEQ_CST))
        while (write(client->wake, "\1", 1) < 0 && errno == EINTR) continue;
}
