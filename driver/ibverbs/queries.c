/* Attributes of a device and its port. */
#include "weft.h"

#include <stdio.h>

#define GID_TYPE_ROCE_V2 1

static void fill_device(const struct weft_device *d, struct ibv_device_attr *attr) {
    memset(attr, 0, sizeof *attr);
    snprintf(attr->fw_ver, sizeof attr->fw_ver, "%u.%u.%u", (unsigned)(d->version >> 16 & 255),
             (unsigned)(d->version >> 8 & 255), (unsigned)(d->version & 255));
    attr->node_guid = attr->sys_image_guid = htobe64(d->node_guid);
    attr->max_mr_size = d->max_mr_size;
    attr->page_size_cap = d->page_size_cap;
    attr->vendor_id = d->vendor_id;
    attr->vendor_part_id = d->vendor_part_id;
    attr->hw_ver = d->hw_ver;
    attr->max_qp = (int)d->max_qp;
    attr->max_qp_wr = (int)d->max_qp_wr;
    attr->device_cap_flags = d->device_cap_flags;
    attr->max_sge = (int)d->max_sge;
    attr->max_sge_rd = (int)d->max_sge_rd;
    attr->max_cq = (int)d->max_cq;
    attr->max_cqe = (int)d->max_cqe;
    attr->max_mr = (int)d->max_mr;
    attr->max_pd = (int)d->max_pd;
    attr->max_qp_rd_atom = (int)d->max_qp_rd_atom;
    attr->max_res_rd_atom = (int)d->max_res_rd_atom;
    attr->max_qp_init_rd_atom = (int)d->max_qp_init_rd_atom;
    attr->atomic_cap = d->atomic_caps;
    attr->max_srq = (int)d->max_srq;
    attr->max_srq_wr = (int)d->max_srq_wr;
    attr->max_srq_sge = (int)d->max_srq_sge;
    attr->max_ah = (int)d->max_ah;
    attr->max_mcast_grp = (int)d->max_mcast_grp;
    attr->max_mcast_qp_attach = (int)d->max_mcast_qp_attach;
    attr->max_total_mcast_qp_attach = (int)(d->max_mcast_grp * d->max_mcast_qp_attach);
    attr->max_pkeys = (uint16_t)d->max_pkeys;
    attr->local_ca_ack_delay = (uint8_t)d->local_ca_ack_delay;
    attr->phys_port_cnt = (uint8_t)d->phys_port_cnt;
}

PUBLIC int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr) {
    fill_device(&context_of(context)->attr, attr);
    return 0;
}

static int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
                           struct ibv_device_attr_ex *attr, size_t size) {
    if ((input && input->comp_mask) || size < sizeof attr->orig_attr) return EINVAL;
    struct ibv_device_attr_ex whole = { .phys_port_cnt_ex = context_of(context)->attr.phys_port_cnt };
    fill_device(&context_of(context)->attr, &whole.orig_attr);
    memset(attr, 0, size);
    memcpy(attr, &whole, size < sizeof whole ? size : sizeof whole);
    return 0;
}

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t size) {
    const struct weft_device *d = &context_of(context)->attr;
    struct ibv_port_attr whole = {
        .state = IBV_PORT_ACTIVE, .max_mtu = d->max_mtu, .active_mtu = d->active_mtu, .gid_tbl_len = 1,
        .port_cap_flags = d->port_cap_flags, .max_msg_sz = d->max_msg_sz, .pkey_tbl_len = 1,
        .active_width = (uint8_t)d->active_width, .active_speed = (uint8_t)d->active_speed, .phys_state = 5,
        .link_layer = IBV_LINK_LAYER_ETHERNET };
    if (!port || port > d->phys_port_cnt) return EINVAL;
    memset(attr, 0, size);
    memcpy(attr, &whole, size < sizeof whole ? size : sizeof whole);
    return 0;
}

/* Public symbol, for programs that were built before the structure grew. */
PUBLIC int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr) {
    return query_port(context, port, (struct ibv_port_attr *)attr, offsetof(struct ibv_port_attr, port_cap_flags2));
}

static int known(struct ibv_context *context, uint32_t port, int index) {
    if (port >= 1 && port <= context_of(context)->attr.phys_port_cnt && index == 0) return 1;
    errno = EINVAL;
    return 0;
}

PUBLIC int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid) {
    if (!known(context, port, index)) return -1;
    memcpy(gid->raw, context_of(context)->gid, sizeof gid->raw);
    return 0;
}

PUBLIC int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned index, int *type) {
    if (!known(context, port, (int)index)) return -1;
    *type = GID_TYPE_ROCE_V2;
    return 0;
}

PUBLIC int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry,
                             uint32_t flags, size_t size) {
    if (flags) return EOPNOTSUPP;
    if (size < sizeof *entry || !known(context, port, 0)) return EINVAL;
    if (index) return ENODATA;
    memset(entry, 0, size);
    entry->port_num = port;
    entry->gid_type = IBV_GID_TYPE_ROCE_V2;
    memcpy(entry->gid.raw, context_of(context)->gid, sizeof entry->gid.raw);
    return 0;
}

PUBLIC ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t most,
                                    uint32_t flags, size_t size) {
    if (!most) return -EINVAL;
    int error = _ibv_query_gid_ex(context, 1, 0, entries, flags, size);
    return error ? -error : 1;
}

PUBLIC int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey) {
    if (!known(context, port, index)) return -1;
    *pkey = htobe16(0xFFFF);
    return 0;
}

PUBLIC int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey) {
    return known(context, port, 0) && pkey == htobe16(0xFFFF) ? 0 : -1;
}

void add_queries(struct verbs_context *v) {
    v->query_port = query_port;
    v->query_device_ex = query_device_ex;
}
