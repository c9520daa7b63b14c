/* Forks, exits and signals under an open KVDB, and the manners of a guest. */
#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* Runs in a child, which ends by that; returns how. */
static int in_child(void (*run)(void)) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        run();
        _exit(0);
    }
    int status = 0;
    while (waitpid(pid, &status, 0) < 0) {
        CHECK(errno == EINTR);
    }
    return status;
}

static esker_db *parents_db;
static esker_kvs *parents_kvs;
static esker_iter *parents_iter;

static void use_of_the_parents_handles(void) {
    esker_value value;
    esker_slice key;
    bool found;
    FAILS(ESKER_CLOSED, esker_put(parents_kvs, "child", 5, "v", 1, 0));
    FAILS(ESKER_CLOSED, esker_get(parents_kvs, "key", 3, &value));
    FAILS(ESKER_CLOSED, esker_iter_next(parents_iter, &key, NULL, &found));
    FAILS(ESKER_CLOSED, esker_sync(parents_db));
    FAILS(ESKER_CLOSED, esker_close(parents_db));
    esker_txn *txn;
    FAILS(ESKER_CLOSED, esker_txn_begin(parents_db, &txn));
    esker_iter_free(parents_iter);
    esker_kvs_free(parents_kvs);
    esker_db_free(parents_db);
    /* The child opens one of its own. */
    esker_options *options = esker_options_new();
    esker_options_set_memory(options, 32 << 20);
    OK(esker_create("of-the-child", options, &parents_db));
    esker_options_free(options);
    OK(esker_kvs_create(parents_db, "a", NULL, &parents_kvs));
    put(parents_kvs, "key", "value");
    exit(0); /* With all that a program does at its end. */
}

static void child_is_told_and_parent_goes_on(void) {
    parents_db = open_db(&parents_kvs);
    put(parents_kvs, "key", "value");
    OK(esker_iter_new(parents_kvs, NULL, &parents_iter));
    for (int n = 0; n < 10; n++) {
        int status = in_child(use_of_the_parents_handles);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        put(parents_kvs, "after", "fork");
        CHECK(has(parents_kvs, "key", "value") && absent(parents_kvs, "child"));
        esker_db *own;
        esker_kvs *kvs;
        OK(esker_open("of-the-child", NULL, &own));
        OK(esker_kvs_open(own, "a", &kvs));
        CHECK(has(kvs, "key", "value"));
        esker_kvs_free(kvs);
        esker_db_free(own);
        OK(esker_destroy("of-the-child", NULL));
    }
    esker_iter_free(parents_iter);
    esker_kvs_free(parents_kvs);
    OK(esker_close(parents_db));
    esker_db_free(parents_db);
}

enum { WRITES = 3000 };

static void write_and_forget(void) {
    esker_options *options = esker_options_new();
    esker_options_set_memory(options, 32 << 20);
    esker_options_set_durability(options, 600000, 0); /* Only the end of the process makes it durable. */
    OK(esker_open_or_create("db", options, &parents_db));
    esker_options_free(options);
    OK(esker_kvs_open_or_create(parents_db, "a", NULL, &parents_kvs));
    for (int n = 0; n < WRITES; n++) {
        char key[16];
        snprintf(key, sizeof key, "%d", n);
        put(parents_kvs, key, key);
    }
}

static void all_is_there(void) {
    esker_kvs *kvs;
    esker_db *db = open_db(&kvs);
    for (int n = 0; n < WRITES; n++) {
        char key[16];
        snprintf(key, sizeof key, "%d", n);
        CHECK(has(kvs, key, key));
    }
    esker_kvs_free(kvs);
    OK(esker_close(db));
    esker_db_free(db);
    bool sound;
    OK(esker_check("db", NULL, &sound, NULL));
    CHECK(sound);
}

static void exits(void) {
    write_and_forget();
    exit(0);
}

static void is_killed(void) {
    write_and_forget();
    raise(SIGKILL);
}

static void writes_are_there_after_an_exit_without_close(void) {
    CHECK(in_child(exits) == 0);
    all_is_there();
}

static void writes_are_there_after_a_kill(void) {
    CHECK(WTERMSIG(in_child(is_killed)) == SIGKILL);
    all_is_there();
}

static volatile sig_atomic_t signals;
static pthread_t main_thread;

static void on_signal(int signal) {
    (void)signal;
    /* A thread of the library's never runs it. */
    if (!pthread_equal(pthread_self(), main_thread)) {
        _exit(9);
    }
    signals = signals + 1;
}

static void signals_in_the_middle_of_calls_change_nothing(void) {
    esker_kvs *kvs;
    esker_db *db = open_db(&kvs);
    main_thread = pthread_self();
    struct sigaction action = {0}; /* Without SA_RESTART: system calls are interrupted. */
    action.sa_handler = on_signal;
    CHECK(!sigaction(SIGALRM, &action, NULL));
    struct itimerval timer = {{0, 500}, {0, 500}};
    CHECK(!setitimer(ITIMER_REAL, &timer, NULL));
    static char value[3000];
    for (int n = 0; n < 5000; n++) {
        OK(esker_put(kvs, &n, sizeof n, value, sizeof value, n % 500 ? 0 : ESKER_DURABLE));
    }
    OK(esker_sync(db));
    OK(esker_ingest(db));
    OK(esker_compact(db, ESKER_COMPACT_FULL, 0, NULL));
    for (int n = 0; n < 5000; n++) {
        esker_value found;
        OK(esker_get(kvs, &n, sizeof n, &found));
        CHECK(found.size == sizeof value);
        esker_value_free(&found);
    }
    esker_kvs_free(kvs);
    OK(esker_close(db));
    esker_db_free(db);
    db = open_db(&kvs);
    struct itimerval off = {{0, 0}, {0, 0}};
    CHECK(!setitimer(ITIMER_REAL, &off, NULL));
    CHECK(signals > 50);
    int last = 4999;
    bool found;
    OK(esker_contains(kvs, &last, sizeof last, &found));
    CHECK(found);
    esker_kvs_free(kvs);
    esker_db_free(db);
}

static void dispositions_stay(void) {
    struct sigaction before[65], after;
    for (int signal = 1; signal < 65; signal++) {
        sigaction(signal, NULL, &before[signal]);
    }
    esker_kvs *kvs;
    esker_db *db = open_db(&kvs);
    put(kvs, "key", "value");
    OK(esker_compact(db, ESKER_COMPACT_FULL, 0, NULL));
    esker_kvs_free(kvs);
    OK(esker_close(db));
    esker_db_free(db);
    for (int signal = 1; signal < 65; signal++) {
        if (!sigaction(signal, NULL, &after)) {
            CHECK(after.sa_handler == before[signal].sa_handler);
        }
    }
}

static void refuse_io_uring(int number) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, SYS_io_uring_setup, 0, 2),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, SYS_io_uring_setup + 2, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)number),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    CHECK(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
    CHECK(syscall(SYS_io_uring_setup, 1, NULL) == -1 && errno == number);
}

static void hear(void *context, const char *remark, size_t size) {
    (void)size;
    if (strstr(remark, "io_uring is refused")) {
        ++*(int *)context;
    }
}

static void work_without_io_uring(void) {
    int heard = 0;
    esker_options *options = esker_options_new();
    esker_options_set_memory(options, 32 << 20);
    esker_options_set_on_remark(options, hear, &heard);
    esker_db *db;
    esker_kvs *kvs;
    OK(esker_create("refused", options, &db));
    CHECK(heard > 0);
    OK(esker_kvs_create(db, "a", NULL, &kvs));
    static char value[3000];
    for (int n = 0; n < 3000; n++) {
        OK(esker_put(kvs, &n, sizeof n, value, sizeof value, 0));
    }
    OK(esker_sync(db));
    OK(esker_compact(db, ESKER_COMPACT_FULL, 0, NULL));
    int last = 2999;
    bool found;
    OK(esker_contains(kvs, &last, sizeof last, &found));
    CHECK(found);
    esker_kvs_free(kvs);
    OK(esker_close(db));
    esker_db_free(db);
    esker_options_free(options);
    OK(esker_destroy("refused", NULL));
}

static void forbidden(void) {
    refuse_io_uring(EPERM);
    work_without_io_uring();
}

static void unknown(void) {
    refuse_io_uring(ENOSYS);
    work_without_io_uring();
}

static void it_works_where_io_uring_is_refused(void) {
    CHECK(in_child(forbidden) == 0);
    CHECK(in_child(unknown) == 0);
}

static const check_case cases[] = {
    {"child_is_told_and_parent_goes_on", child_is_told_and_parent_goes_on},
    {"writes_are_there_after_an_exit_without_close", writes_are_there_after_an_exit_without_close},
    {"writes_are_there_after_a_kill", writes_are_there_after_a_kill},
    {"signals_in_the_middle_of_calls_change_nothing", signals_in_the_middle_of_calls_change_nothing},
    {"dispositions_stay", dispositions_stay},
    {"it_works_where_io_uring_is_refused", it_works_where_io_uring_is_refused},
};

MAIN(cases)
