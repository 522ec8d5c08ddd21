/* Protection domains and memory regions. */
#include "weft.h"

struct mr {
    struct ibv_mr ibv;
    struct share *share;
};

PUBLIC struct ibv_pd *ibv_alloc_pd(struct ibv_context *context) {
    struct weft_handle answer;
    struct ibv_pd *pd = calloc(1, sizeof *pd);
    errno = pd ? weft_call(context_of(context), (struct call){ .opcode = WEFT_ALLOC_PD, .answer = &answer,
                                                               .answer_size = sizeof answer }) : ENOMEM;
    if (errno) {
        free(pd);
        return NULL;
    }
    *pd = (struct ibv_pd){ .context = context, .handle = answer.handle };
    return pd;
}

PUBLIC int ibv_dealloc_pd(struct ibv_pd *pd) {
    int error = weft_destroy(context_of(pd->context), WEFT_KIND_PD, pd->handle);
    if (!error) free(pd);
    return error;
}

PUBLIC struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *start, size_t length, uint64_t iova, unsigned access) {
    struct context *c = context_of(pd->context);
    struct weft_piece pieces[WEFT_MOST_PIECES];
    uint32_t count = WEFT_MOST_PIECES;
    struct weft_keys keys;
    struct mr *mr = calloc(1, sizeof *mr);
    if (!mr) return NULL;
    errno = pages_share(c, start, length, (int)access, &mr->share, pieces, &count);
    if (!errno) {
        struct weft_reg_mr body = { .pd = pd->handle, .access = access & ~IBV_ACCESS_OPTIONAL_RANGE, .length = length,
                                    .iova = iova, .count = count };
        int error = weft_call(c, (struct call){ .opcode = WEFT_REG_MR, .body = &body, .size = sizeof body,
            .tail = pieces, .tail_size = count * sizeof *pieces, .answer = &keys, .answer_size = sizeof keys });
        if (!error) {
            mr->ibv = (struct ibv_mr){ .context = pd->context, .pd = pd, .addr = start, .length = length,
                                       .handle = keys.handle, .lkey = keys.lkey, .rkey = keys.rkey };
            return &mr->ibv;
        }
        pages_leave(mr->share);
        errno = error;
    }
    free(mr);
    return NULL;
}

PUBLIC struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *start, size_t length, uint64_t iova, int access) {
    return ibv_reg_mr_iova2(pd, start, length, iova, (unsigned)access);
}

PUBLIC struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *start, size_t length, int access) {
    return ibv_reg_mr_iova2(pd, start, length, (uintptr_t)start, (unsigned)access);
}

PUBLIC int ibv_rereg_mr(struct ibv_mr *ibv, int flags, struct ibv_pd *pd, void *start, size_t length, int access) {
    struct mr *mr = container(ibv, struct mr, ibv);
    struct context *c = context_of(ibv->context);
    struct weft_piece pieces[WEFT_MOST_PIECES];
    struct weft_keys keys;
    struct share *share = NULL;
    uint32_t count = WEFT_MOST_PIECES;
    if (!flags || flags & ~IBV_REREG_MR_FLAGS_SUPPORTED
        || (flags & IBV_REREG_MR_CHANGE_PD && !pd)) return IBV_REREG_MR_ERR_INPUT;
    if (!(flags & IBV_REREG_MR_CHANGE_TRANSLATION)) count = 0;
    else if (!start || !length || (errno = pages_share(c, start, length, access, &share, pieces, &count)))
        return IBV_REREG_MR_ERR_INPUT;
    struct weft_rereg_mr body = { .handle = ibv->handle, .flags = (uint32_t)flags, .pd = pd ? pd->handle : 0,
        .access = (uint32_t)access & ~IBV_ACCESS_OPTIONAL_RANGE, .length = length, .iova = (uintptr_t)start,
        .count = count };
    int error = weft_call(c, (struct call){ .opcode = WEFT_REREG_MR, .body = &body, .size = sizeof body,
        .tail = pieces, .tail_size = count * sizeof *pieces, .answer = &keys, .answer_size = sizeof keys });
    if (error) {
        if (share) pages_leave(share);
        errno = error;
        return IBV_REREG_MR_ERR_CMD;
    }
    if (share) {
        pages_leave(mr->share);
        mr->share = share;
        ibv->addr = start;
        ibv->length = length;
    }
    if (flags & IBV_REREG_MR_CHANGE_PD) ibv->pd = pd;
    ibv->lkey = keys.lkey;
    ibv->rkey = keys.rkey;
    return 0;
}

PUBLIC int ibv_dereg_mr(struct ibv_mr *ibv) {
    struct mr *mr = container(ibv, struct mr, ibv);
    int error = weft_destroy(context_of(ibv->context), WEFT_KIND_MR, ibv->handle);
    if (error) return error;
    pages_leave(mr->share);
    free(mr);
    return 0;
}
