/* Memory that the card and this process share.
 *
 * Registered pages are replaced in place by pages of a file (memfd), which the daemon maps as well: no data is copied
 * between them afterwards. Registrations may overlap: pages that are shared already are used again. When no
 * registration needs a range any more, its pages become private ones with the same contents, in one step. A forked
 * child gets private pages at once. Pages keep their protection. A large range has the alignment of large pages (2 MiB)
 * in its file, and the card needs one entry for each of them. Huge pages can only be replaced as a whole. */
#include "weft.h"

#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <fcntl.h>

#define PAGE ((uintptr_t)4096)
#define LARGE ((uintptr_t)2 << 20)
#define MANY (2 * LARGE)

struct known {
    struct context *context;
    uint32_t handle;
    struct known *next;
};

struct file {
    int fd;
    ino_t inode;
    size_t size;
    struct known *known; /* connections that have the file, with its handle there */
};

struct range {
    uintptr_t start, end;
    struct file *file; /* belongs to this range alone */
    off_t offset;      /* of the first page in the file */
    int uses, stale, protection; /* stale: the program has mapped other pages there */
    struct range *next;
};

struct share {
    uint32_t count;
    struct range *ranges[];
};

static struct range *ranges; /* by address, not overlapping */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Return true if the range still consists of the pages of its file. */
static int intact(const struct range *r) { return pages_are_of(r->start, r->end, r->file->inode); }

static void file_close(struct file *file) {
    while (file->known) {
        struct known *k = file->known;
        file->known = k->next;
        weft_destroy(k->context, WEFT_KIND_FILE, k->handle);
        free(k);
    }
    close(file->fd);
    free(file);
}

static struct file *file_new(size_t size) {
    struct stat about;
    struct file *file = calloc(1, sizeof *file);
    if (!file) return NULL;
    file->size = size;
    file->fd = memfd_create("weft", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file->fd < 0 || ftruncate(file->fd, (off_t)size) || fstat(file->fd, &about)
        || fcntl(file->fd, F_ADD_SEALS, F_SEAL_SHRINK)) {
        int error = errno;
        if (file->fd >= 0) close(file->fd);
        free(file);
        errno = error;
        return NULL;
    }
    file->inode = about.st_ino;
    return file;
}

/* Get the handle of a file on a connection; share the file with the daemon first if necessary. */
static int handle_of(struct context *c, struct file *file, uint32_t *handle) {
    struct known *k = file->known;
    while (k && k->context != c) k = k->next;
    if (!k) {
        struct weft_share body = { .size = file->size };
        struct weft_handle answer;
        int error = weft_call(c, (struct call){ .opcode = WEFT_SHARE, .body = &body, .size = sizeof body,
            .file = file->fd, .answer = &answer, .answer_size = sizeof answer });
        if (error) return error;
        k = malloc(sizeof *k);
        if (!k) return ENOMEM;
        *k = (struct known){ c, answer.handle, file->known };
        file->known = k;
    }
    *handle = k->handle;
    return 0;
}

static int share_new(struct range **place, uintptr_t start, uintptr_t end, int protection) {
    off_t offset = end - start >= MANY ? (off_t)(start % LARGE) : 0; /* the bytes before it are never accessed */
    struct range *r = calloc(1, sizeof *r);
    struct file *file = r ? file_new((size_t)offset + (end - start)) : NULL;
    int error = file ? copy_into(&(struct pages){ file->fd, protection, offset, start, end - start }) : errno;
    if (error) {
        if (file) file_close(file);
        free(r);
        return error;
    }
    *r = (struct range){ .start = start, .end = end, .file = file, .offset = offset, .protection = protection,
                         .next = *place };
    *place = r;
    return 0;
}

/* Share pages that are not shared yet, from `start` to at most `end`, and insert their range before `*place`. */
static int range_new(struct range **place, uintptr_t start, uintptr_t end) {
    struct segment run;
    int error = pages_run(start, &run);
    if (error) return error;
    if (end > run.end) end = run.end;
    error = share_new(place, start, end, run.protection);
    uintptr_t low = start & ~(LARGE - 1), high = (end + LARGE - 1) & ~(LARGE - 1);
    if (error == EINVAL && low >= run.start && high <= run.end) /* huge pages */
        error = share_new(place, low, high, run.protection);
    return error;
}

static void range_leave(struct range *r) {
    if (--r->uses > 0) return;
    if (!r->stale) {
        struct range **place = &ranges;
        while (*place != r) place = &(*place)->next;
        *place = r->next;
        if (intact(r)) pages_make_private(r->start, r->end, r->file->fd, r->offset);
    }
    file_close(r->file);
    free(r);
}

static void leave(struct share *share) {
    for (uint32_t i = 0; i < share->count; i++) range_leave(share->ranges[i]);
    free(share);
}

/* Find the first range that ends after `at`; remove stale ranges. */
static struct range **range_at(uintptr_t at, uintptr_t end) {
    struct range **place = &ranges;
    while (*place && (*place)->start < end) {
        struct range *r = *place;
        if (r->end <= at) place = &r->next;
        else if (intact(r)) break;
        else {
            r->stale = 1;
            *place = r->next;
        }
    }
    return place;
}

static int add(struct context *c, struct range *r, uintptr_t at, uintptr_t end, struct share *share,
               struct weft_piece *piece) {
    r->uses++;
    share->ranges[share->count++] = r;
    *piece = (struct weft_piece){ .offset = (uint64_t)r->offset + at - r->start, .length = (r->end < end ? r->end : end) - at };
    return handle_of(c, r->file, &piece->file);
}

/* Share the whole pages around `length` bytes at `start`, writable if `access` requires it, and return their pieces: at
 * most `*count`, which becomes their number. The result is 0 or an error number. */
int pages_share(struct context *c, void *start, size_t length, int access, struct share **share,
                struct weft_piece *pieces, uint32_t *count) {
    const int writes = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    uintptr_t at = (uintptr_t)start & ~(PAGE - 1), end = ((uintptr_t)start + length + PAGE - 1) & ~(PAGE - 1);
    if (!length || end <= at) return EINVAL;
    struct share *s = calloc(1, sizeof *s + *count * sizeof *s->ranges);
    int error = s ? 0 : ENOMEM;
    pthread_mutex_lock(&lock);
    if (!error) error = pages_permitted(at, end, PROT_READ | (access & writes ? PROT_WRITE : 0));
    while (!error && at < end) {
        struct range **place = range_at(at, end);
        if (s->count == *count) error = ENOMEM;
        else if (!*place || (*place)->start > at)
            error = range_new(place, at, *place && (*place)->start < end ? (*place)->start : end);
        if (!error) error = add(c, *place, at, end, s, &pieces[s->count]);
        if (!error) at = (*place)->end;
    }
    if (error && s) leave(s);
    pthread_mutex_unlock(&lock);
    *share = s;
    if (!error) *count = s->count;
    return error;
}

void pages_leave(struct share *share) {
    pthread_mutex_lock(&lock);
    leave(share);
    pthread_mutex_unlock(&lock);
}

/* Remove the handles of a connection that ends. */
void pages_forget(struct context *c) {
    pthread_mutex_lock(&lock);
    for (struct range *r = ranges; r; r = r->next)
        for (struct known **k = &r->file->known; *k;)
            if ((*k)->context == c) {
                struct known *gone = *k;
                *k = gone->next;
                free(gone);
            } else k = &(*k)->next;
    pthread_mutex_unlock(&lock);
}

/* fork: the child does not use the card, and writes into private pages, with the contents at the time of the fork. The
 * parent, and its card with it, continues when the child has copied them and closed its end of `copied`. */
static int copied[2] = { -1, -1 };

static void before_fork(void) {
    pthread_mutex_lock(&lock);
    if (!ranges || pipe2(copied, O_CLOEXEC)) copied[0] = copied[1] = -1;
}

static void in_parent(void) {
    char byte;
    if (copied[0] >= 0) {
        close(copied[1]);
        while (read(copied[0], &byte, 1) < 0 && errno == EINTR) {}
        close(copied[0]);
    }
    pthread_mutex_unlock(&lock);
}

static void in_child(void) {
    for (struct range *r = ranges; r; r = r->next)
        if (r->protection & PROT_WRITE
            && mmap((void *)r->start, r->end - r->start, r->protection, MAP_PRIVATE | MAP_FIXED, r->file->fd, r->offset)
                != MAP_FAILED)
            for (uintptr_t at = r->start; at < r->end; at += PAGE) *(volatile char *)at = *(volatile char *)at;
    ranges = NULL;
    if (copied[0] >= 0) {
        close(copied[0]);
        close(copied[1]);
    }
    pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void start(void) { pthread_atfork(before_fork, in_parent, in_child); }
