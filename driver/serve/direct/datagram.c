/* Unreliable datagrams: a message is copied to the QPs that its address names, or to none of them. */
#include "direct.h"

#include <arpa/inet.h>

enum { GRH = 40, IPV4_AT = 20, IPV4_BYTES = 20, AFTER_IPV4 = 8 + 12 + 8, IMM = 4, ICRC = 4 };
enum { COPY = 1024, LOOK = 16 }; /* cost of a member, and of one of another group, in bytes of a turn */
enum { HEADER_KIND = 10, MULTICAST_QPN = 0xFFFFFF, QPN_MASK = 0xFFFFFF }; /* the first as in driver/datagram/packet.py */
static const uint32_t OWN_QKEY = 1u << 31; /* a request with such a Q_Key sends that of its QP (IBTA 10.2.5) */

/* Deliver the messages to a group to a QP; return 0 without memory. */
PUBLIC int weft_direct_qp_join(struct qp *qp, uint32_t group) {
    struct member **at = &qp->client->host->fabric->members;
    for (; *at; at = &(*at)->next)
        if ((*at)->qp == qp && (*at)->group == group) return 1;
    struct member *member = malloc(sizeof *member);
    if (!member) return 0;
    *member = (struct member){ .qp = qp, .group = group };
    *at = member;
    return 1;
}

/* End the membership of a QP in a group, or in all groups: 0. */
PUBLIC void weft_direct_qp_leave(struct qp *qp, uint32_t group) {
    struct member **at = &qp->client->host->fabric->members;
    while (*at) {
        struct member *member = *at;
        if (member->qp == qp && (!group || member->group == group)) {
            *at = member->next;
            free(member);
        } else at = &member->next;
    }
}

/* Write the header in front of the data of a receive: 20 bytes of zeros, and that of the IPv4 packet on a link. */
static void write_grh(uint8_t *to, const struct qp *from, const struct request *r, uint32_t ip) {
    size_t data = (r->local.length + 3) / 4 * 4, imm = r->opcode == IBV_WR_SEND_WITH_IMM ? IMM : 0;
    size_t length = IPV4_BYTES + AFTER_IPV4 + imm + data + ICRC;
    uint32_t source = htonl(from->client->host->ip), destination = htonl(ip), sum = 0;
    /* Version and length of the header; total length; do not fragment; time to live; UDP. */
    const uint8_t first[] = { 0x45, 0, (uint8_t)(length >> 8), (uint8_t)length, 0, 0, 0x40, 0, 64, 17 };
    uint8_t *ipv4 = to + IPV4_AT;
    memset(to, 0, GRH);
    memcpy(ipv4, first, sizeof first);
    memcpy(ipv4 + 12, &source, sizeof source);
    memcpy(ipv4 + 16, &destination, sizeof destination);
    for (int n = 0; n < IPV4_BYTES; n += 2) sum += (uint32_t)(ipv4[n] << 8 | ipv4[n + 1]);
    sum = (sum & 0xFFFF) + (sum >> 16);
    sum = ~((sum & 0xFFFF) + (sum >> 16));
    ipv4[10] = (uint8_t)(sum >> 8);
    ipv4[11] = (uint8_t)sum;
}

/* Message with its header, apart from the request that sends it: a sender whose receive fails has no request any more. */
struct datagram {
    const struct qp *from;
    const uint8_t *bytes;
    size_t length, payload;
    uint32_t qkey, imm;
    int with_imm, solicited;
};

/* Give a message to a QP that takes it; otherwise it is lost. */
static void receive(struct qp *qp, const struct datagram *sent) {
    struct parts parts;
    uint64_t wr_id;
    if (qp->client->dead || qp->error || qp->attr.state < IBV_QPS_RTR || qp->attr.qkey != sent->qkey) return;
    uint32_t filled = look_at_receive(qp->receives, &wr_id, &parts);
    if (!filled || parts.length < sent->length) return;
    took_receive(qp->receives, filled);
    struct weft_wc_slot wc = { .wr_id = wr_id, .opcode = IBV_WC_RECV, .qp_num = qp->number };
    struct host *host = qp->client->host;
    if (!parts_allowed(host, qp->pd, &parts, sent->length, IBV_ACCESS_LOCAL_WRITE)
        || copy_list(host, qp->pd, &parts, 0, sent->bytes, sent->length, 1) != DONE) {
        wc.status = IBV_WC_LOC_PROT_ERR;
        push(qp->recv_cq, &wc, 0);
        fail(qp, IBV_WC_WR_FLUSH_ERR);
        return;
    }
    count(&host->received, sent->payload);
    wc.byte_len = (uint32_t)sent->length;
    wc.src_qp = sent->from->number;
    wc.sl = HEADER_KIND;
    wc.wc_flags = sent->with_imm ? IBV_WC_GRH | IBV_WC_WITH_IMM : IBV_WC_GRH;
    wc.imm_data = sent->with_imm ? sent->imm : 0;
    push(qp->recv_cq, &wc, sent->solicited);
}

/* Carry out the send request that `qp` begins; return its status. Its data is copied to the bounce buffer once. The
 * cost of the members of its group is added to `done`. */
enum ibv_wc_status send_datagram(struct qp *qp, struct request *r) {
    struct host *own = qp->client->host;
    struct fabric *fabric = own->fabric;
    uint32_t ip = (uint32_t)r->remote_addr, number = (uint32_t)r->compare_add & QPN_MASK;
    size_t length = r->local.length, cost = 0;
    const uint8_t *ahead;
    if (r->refused) return r->refused;
    if (length > qp->payload_max) return IBV_WC_LOC_LEN_ERR;
    uint8_t *message = fabric->bounce, *data = message + GRH;
    if (r->inline_length) memcpy(data, r->inlined, length);
    else if (length && (ahead = read_ahead(qp, r))) memcpy(data, ahead, length);
    else {
        enum access found = copy_list(own, qp->pd, &r->local, 0, data, length, 0);
        if (found != DONE) return found == DENIED ? IBV_WC_LOC_PROT_ERR : IBV_WC_LOC_QP_OP_ERR;
    }
    write_grh(message, qp, r, ip);
    const struct datagram sent = {
        .from = qp, .bytes = message, .length = GRH + length, .payload = length, .imm = r->imm,
        .qkey = r->rkey & OWN_QKEY ? qp->attr.qkey : r->rkey, .with_imm = r->opcode == IBV_WR_SEND_WITH_IMM,
        .solicited = (r->flags & IBV_SEND_SOLICITED) != 0,
    };
    if (ip >> 28 == 0xE) {
        for (struct member *member = fabric->members; member && number == MULTICAST_QPN; member = member->next) {
            cost += member->group == ip ? COPY + sent.length : LOOK;
            if (member->group == ip) receive(member->qp, &sent);
        }
        if (!qp->error) r->done += cost;
        return IBV_WC_SUCCESS;
    }
    struct host *host = fabric->hosts;
    while (host && host->ip != ip) host = host->next;
    struct qp *to = host ? host->datagram_qps[number % DATAGRAM_QPS] : NULL;
    if (to && to->number == number) receive(to, &sent);
    return IBV_WC_SUCCESS;
}
