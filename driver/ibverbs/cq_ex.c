/* Extended completion queues: completions are read field by field. */
#include "weft.h"

static struct cq *of(struct ibv_cq_ex *ex) { return container(ex, struct cq, ex); }

static int take(struct ibv_cq_ex *ex) {
    struct cq *cq = of(ex);
    if (!cq_take(cq, &cq->wc)) return ENOENT;
    ex->status = cq->wc.status;
    ex->wr_id = cq->wc.wr_id;
    return 0;
}

static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr) {
    struct cq *cq = of(ex);
    if (attr && attr->comp_mask) return EINVAL;
    pthread_mutex_lock(&cq->lock); /* until end_poll: the current completion is of the thread that took it */
    int n = poll_locked(cq, 1, &cq->wc);
    if (n == 1) {
        ex->status = cq->wc.status;
        ex->wr_id = cq->wc.wr_id;
        return 0;
    }
    pthread_mutex_unlock(&cq->lock);
    return n ? EIO : ENOENT;
}

static void end_poll(struct ibv_cq_ex *ex) { pthread_mutex_unlock(&of(ex)->lock); }

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *ex) { return of(ex)->wc.opcode; }

static uint32_t read_vendor_err(struct ibv_cq_ex *ex) { return of(ex)->wc.vendor_err; }

static uint32_t read_byte_len(struct ibv_cq_ex *ex) { return of(ex)->wc.byte_len; }

static __be32 read_imm_data(struct ibv_cq_ex *ex) { return of(ex)->wc.imm_data; }

static uint32_t read_qp_num(struct ibv_cq_ex *ex) { return of(ex)->wc.qp_num; }

static uint32_t read_src_qp(struct ibv_cq_ex *ex) { return of(ex)->wc.src_qp; }

static unsigned read_wc_flags(struct ibv_cq_ex *ex) { return of(ex)->wc.wc_flags; }

static uint32_t read_slid(struct ibv_cq_ex *ex) { return of(ex)->wc.slid; }

static uint8_t read_sl(struct ibv_cq_ex *ex) { return of(ex)->wc.sl; }

static uint8_t read_dlid_path_bits(struct ibv_cq_ex *ex) { return of(ex)->wc.dlid_path_bits; }

struct ibv_cq_ex *create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr) {
    const uint32_t flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
    if (attr->wc_flags & ~(uint64_t)IBV_WC_STANDARD_FLAGS || attr->comp_mask & ~(uint32_t)IBV_CQ_INIT_ATTR_MASK_FLAGS
        || (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS && attr->flags & ~flags)) {
        weft_log("a completion has no timestamp and nothing else beyond IBV_WC_STANDARD_FLAGS here");
        errno = EOPNOTSUPP;
        return NULL;
    }
    struct cq *cq = cq_create(context, attr->cqe, attr->cq_context, attr->channel, (int)attr->comp_vector);
    if (!cq) return NULL;
    struct ibv_cq_ex *ex = &cq->ex;
    ex->start_poll = start_poll;
    ex->next_poll = take;
    ex->end_poll = end_poll;
    ex->read_opcode = read_opcode;
    ex->read_vendor_err = read_vendor_err;
    ex->read_byte_len = read_byte_len;
    ex->read_imm_data = read_imm_data;
    ex->read_qp_num = read_qp_num;
    ex->read_src_qp = read_src_qp;
    ex->read_wc_flags = read_wc_flags;
    ex->read_slid = read_slid;
    ex->read_sl = read_sl;
    ex->read_dlid_path_bits = read_dlid_path_bits;
    return ex;
}
