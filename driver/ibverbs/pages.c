/* Memory that the card and this process share.
 *
 * Registered pages are replaced in place by pages of a file (memfd), which the daemon maps as well: nothing is ever
 * copied between them again. Registrations may overlap: what is shared already is used again. When nobody needs a
 * range any more its pages become private ones of the same content, in one step. A child that is forked gets private
 * ones at once. */
#include "weft.h"

#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <fcntl.h>

#define PAGE ((uintptr_t)4096)

struct known {
    struct context *context;
    uint32_t handle;
    struct known *next;
};

struct file {
    int fd;
    ino_t inode;
    size_t size;
    struct known *known; /* to which connections, as what */
};

struct range {
    uintptr_t start, end;
    struct file *file; /* all of it */
    int uses, stale;   /* stale: the program has put other pages there */
    struct range *next;
};

struct share {
    uint32_t count;
    struct range *ranges[];
};

static struct range *ranges; /* by address; none overlaps another */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* A line of /proc/self/maps. */
struct segment {
    uintptr_t start, end;
    int shared;
    ino_t inode;
};

static int next_segment(FILE *maps, struct segment *s) {
    char line[512], flags[8];
    unsigned long start, end, inode;
    while (fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %7s %*x %*s %lu", &start, &end, flags, &inode) == 4) {
            *s = (struct segment){ start, end, flags[3] == 's', inode };
            return 1;
        }
    return 0;
}

/* Whether a range is what it was when it was shared. */
static int intact(const struct range *r) {
    struct segment s;
    uintptr_t at = r->start;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && at < r->end && next_segment(maps, &s))
        if (s.end > at && (s.start > at || s.inode != r->file->inode)) break;
        else if (s.end > at) at = s.end;
    if (maps) fclose(maps);
    return at >= r->end;
}

/* Whether pages can be replaced: they are there, and no other process has them. */
static int replaceable(uintptr_t start, uintptr_t end) {
    struct segment s;
    int error = EFAULT;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && start < end && next_segment(maps, &s)) {
        if (s.end <= start) continue;
        if (s.start > start) break;
        if (s.shared) {
            weft_log("memory that this process shares with others cannot be registered");
            error = EOPNOTSUPP;
            break;
        }
        start = s.end;
    }
    if (maps) fclose(maps);
    return start >= end ? 0 : error;
}

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

/* What a connection calls a file; told now if it does not know it. */
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

/* Share pages that are not, and put them in front of `*place`. */
static int range_new(struct range **place, uintptr_t start, uintptr_t end) {
    int error = replaceable(start, end);
    if (error) return error;
    struct range *r = calloc(1, sizeof *r);
    struct file *file = r ? file_new(end - start) : NULL;
    error = file ? copy_into(file->fd, start, end - start) : errno;
    if (error) {
        if (file) file_close(file);
        free(r);
        return error;
    }
    *r = (struct range){ .start = start, .end = end, .file = file, .next = *place };
    *place = r;
    return 0;
}

static void range_leave(struct range *r) {
    if (--r->uses > 0) return;
    if (!r->stale) {
        struct range **place = &ranges;
        while (*place != r) place = &(*place)->next;
        *place = r->next;
        if (intact(r))
            mmap((void *)r->start, r->end - r->start, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, r->file->fd, 0);
    }
    file_close(r->file);
    free(r);
}

static void leave(struct share *share) {
    for (uint32_t i = 0; i < share->count; i++) range_leave(share->ranges[i]);
    free(share);
}

/* The first range that ends behind `at`; those that are gone are taken out. */
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
    *piece = (struct weft_piece){ .offset = at - r->start, .length = (r->end < end ? r->end : end) - at };
    return handle_of(c, r->file, &piece->file);
}

/* Share whole pages around `length` bytes at `start`, and say where they are: at most `*count` pieces, which becomes
 * how many there are. 0 or an error number. */
int pages_share(struct context *c, void *start, size_t length, struct share **share, struct weft_piece *pieces,
                uint32_t *count) {
    uintptr_t at = (uintptr_t)start & ~(PAGE - 1), end = ((uintptr_t)start + length + PAGE - 1) & ~(PAGE - 1);
    if (!length || end <= at) return EINVAL;
    struct share *s = calloc(1, sizeof *s + *count * sizeof *s->ranges);
    int error = s ? 0 : ENOMEM;
    pthread_mutex_lock(&lock);
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

/* A connection ends. */
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

/* fork: the child has nothing to do with the card, and writes into pages of its own. */
static void before_fork(void) { pthread_mutex_lock(&lock); }

static void in_parent(void) { pthread_mutex_unlock(&lock); }

static void in_child(void) {
    for (struct range *r = ranges; r; r = r->next)
        if (mmap((void *)r->start, r->end - r->start, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, r->file->fd, 0)
            != MAP_FAILED)
            for (uintptr_t at = r->start; at < r->end; at += PAGE) *(volatile char *)at = *(volatile char *)at;
    ranges = NULL;
    pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void start(void) { pthread_atfork(before_fork, in_parent, in_child); }
