/* Address handles, and multicast groups of UD queue pairs. */
#include "weft.h"

#define GRH_IPV4_AT 20     /* RoCEv2 over IPv4: the header is at the end of the space for a GRH */
#define IPV4_SOURCE_AT 12
#define IPV4_VERSION 4

static const uint8_t mapped[12] = { [10] = 0xFF, [11] = 0xFF };

PUBLIC struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr) {
    struct ah *ah = NULL;
    if (!attr->is_global || attr->port_num != 1 || attr->grh.sgid_index) {
        weft_log("an address handle on Ethernet has a GRH, and port 1 and GID 0 are the only ones");
        errno = EINVAL;
    } else if (memcmp(attr->grh.dgid.raw, mapped, sizeof mapped)) {
        weft_log("the GID of an address handle has to be IPv4-mapped (::ffff:a.b.c.d)");
        errno = EINVAL;
    } else if ((ah = calloc(1, sizeof *ah))) {
        ah->ibv.context = pd->context;
        ah->ibv.pd = pd;
        memcpy(&ah->ip, attr->grh.dgid.raw + sizeof mapped, sizeof ah->ip);
        ah->ip = be32toh(ah->ip);
        ah->flow_label = attr->grh.flow_label & 0xFFFFF;
    }
    return ah ? &ah->ibv : NULL;
}

PUBLIC int ibv_destroy_ah(struct ibv_ah *ah) {
    free(container(ah, struct ah, ibv));
    return 0;
}

PUBLIC int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh,
                               struct ibv_ah_attr *attr) {
    const uint8_t *ipv4 = (const uint8_t *)grh + GRH_IPV4_AT;
    memset(attr, 0, sizeof *attr);
    if (!(wc->wc_flags & IBV_WC_GRH) || ipv4[0] >> 4 != IPV4_VERSION || port != 1) {
        weft_log("the completion is not that of a datagram at port 1, or its header was overwritten");
        errno = EINVAL;
        return -1;
    }
    (void)context;
    attr->is_global = 1;
    attr->port_num = port;
    attr->grh.hop_limit = 64;
    memcpy(attr->grh.dgid.raw, mapped, sizeof mapped);
    memcpy(attr->grh.dgid.raw + sizeof mapped, ipv4 + IPV4_SOURCE_AT, sizeof(uint32_t));
    return 0;
}

PUBLIC struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port) {
    struct ibv_ah_attr attr;
    return ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr) ? NULL : ibv_create_ah(pd, &attr);
}

/* Write the destination of a datagram into its slot. */
void put_destination(struct weft_send_slot *slot, struct ibv_ah *ibv, uint32_t qpn, uint32_t qkey) {
    const struct ah *ah = container(ibv, struct ah, ibv);
    slot->remote_addr = ah->ip | (uint64_t)ah->flow_label << 32;
    slot->compare_add = qpn;
    slot->rkey = qkey;
}

static int change_membership(unsigned opcode, struct ibv_qp *qp, const union ibv_gid *gid) {
    struct weft_mcast body = { .handle = qp->handle };
    memcpy(body.gid, gid->raw, sizeof body.gid);
    return weft_call(context_of(qp->context), (struct call){ .opcode = opcode, .body = &body, .size = sizeof body });
}

PUBLIC int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid) {
    (void)lid;
    return change_membership(WEFT_ATTACH_MCAST, qp, gid);
}

PUBLIC int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid) {
    (void)lid;
    return change_membership(WEFT_DETACH_MCAST, qp, gid);
}
