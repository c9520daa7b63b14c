/* Fills memory, puts itself into the background, and verifies the memory after its parent has returned:
 * daemon MIB DIRECTORY. The parent returns 42. The daemon writes DIRECTORY/pid, waits for DIRECTORY/go, reads all of its
 * memory, changes it, reads it again, and writes DIRECTORY/right or DIRECTORY/wrong. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t *memory;
static size_t words;

static uint64_t word(size_t n, uint64_t seed) {
    return (n + seed) * 0x9E3779B97F4A7C15u;
}

static void fill(uint64_t seed) {
    for (size_t n = 0; n < words; n++) memory[n] = word(n, seed);
}

static int is_right(uint64_t seed) {
    for (size_t n = 0; n < words; n++)
        if (memory[n] != word(n, seed)) return 0;
    return 1;
}

static void put(const char *name, const char *text) {
    char new[64];
    snprintf(new, sizeof new, "%s.new", name);
    FILE *file = fopen(new, "w");
    if (!file || fputs(text, file) < 0 || fclose(file) || rename(new, name)) _exit(9);
}

int main(int argc, char **argv) {
    if (argc != 3 || chdir(argv[2])) return 2;
    words = (size_t)atol(argv[1]) << 17;
    memory = malloc(words * 8);
    if (!memory) return 3;
    fill(1);
    if (fork()) exit(42);
    setsid();
    if (fork()) _exit(0);
    if (!freopen("/dev/null", "r+", stdin) || !freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr))
        return 4;
    char text[32];
    snprintf(text, sizeof text, "%d\n", (int)getpid());
    put("pid", text);
    struct stat found;
    for (int n = 0; n < 3000 && stat("go", &found); n++) usleep(20000);
    int right = is_right(1);
    fill(2);
    right = right && is_right(2);
    put(right ? "right" : "wrong", "\n");
    return 0;
}
