/* Names of objects: an index and its number of uses, because an event may arrive for an object that is gone. */
#include "weft.h"

static struct entry {
    void *object;
    uint32_t age;
} *entries;
static uint32_t count, used;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Return a name for an object, or 0 if memory is short. */
uint64_t name_new(void *object) {
    uint64_t name = 0;
    pthread_mutex_lock(&lock);
    uint32_t at = 0;
    while (at < used && entries[at].object) at++;
    if (at == count) {
        struct entry *more = realloc(entries, (count + 64) * sizeof *more);
        if (more) {
            memset(more + count, 0, 64 * sizeof *more);
            entries = more;
            count += 64;
        }
    }
    if (at < count) {
        if (at == used) used++;
        entries[at].object = object;
        name = (uint64_t)++entries[at].age << 32 | at;
    }
    pthread_mutex_unlock(&lock);
    return name;
}

static struct entry *entry(uint64_t name) {
    uint32_t at = (uint32_t)name;
    return at < used && entries[at].age == name >> 32 ? &entries[at] : NULL;
}

void *name_find(uint64_t name) {
    pthread_mutex_lock(&lock);
    struct entry *e = entry(name);
    void *object = e ? e->object : NULL;
    pthread_mutex_unlock(&lock);
    return object;
}

void name_forget(uint64_t name) {
    pthread_mutex_lock(&lock);
    struct entry *e = entry(name);
    if (e) e->object = NULL;
    pthread_mutex_unlock(&lock);
}
