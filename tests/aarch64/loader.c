/* Calls functions of shared libraries for tests/aarch64/emulated.py, one line of stdin each.
 *
 * Usage: loader ARENA BASE BYTES. The file ARENA is mapped at the address BASE here and in the caller: pointers into it are
 * valid on both sides. Lines, and what each prints:
 *   open PATH           0                address SYMBOL   its address
 *   call SYMBOL a ...   its result, arguments and result as 64-bit integers */
#include <dlfcn.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MOST_ARGUMENTS 12

static int fail(const char *what)
{
    fprintf(stderr, "%s\n", what);
    return 1;
}

int main(int count, char **given)
{
    static char line[1 << 14];
    if (count != 4) return fail("usage: loader ARENA BASE BYTES");
    void *base = (void *)(uintptr_t)strtoull(given[2], NULL, 0);
    void *arena = mmap(base, strtoull(given[3], NULL, 0), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE,
                       open(given[1], O_RDWR), 0);
    if (arena != base) return fail("the arena cannot be mapped at its address");
    while (fgets(line, sizeof line, stdin)) {
        const char *command = strtok(line, " \n"), *name = strtok(NULL, " \n");
        if (!command || !name) return fail("a line is too short");
        int64_t result = 0;
        if (!strcmp(command, "open")) {
            if (!dlopen(name, RTLD_NOW | RTLD_GLOBAL)) return fail(dlerror());
        } else {
            void *symbol = dlsym(RTLD_DEFAULT, name);
            if (!symbol) return fail(dlerror());
            int64_t a[MOST_ARGUMENTS] = {0};
            int n = 0;
            for (char *word; (word = strtok(NULL, " \n")); a[n++] = (int64_t)strtoull(word, NULL, 0))
                if (n == MOST_ARGUMENTS) return fail("too many arguments");
            int64_t (*function)(int64_t, ...) = (int64_t (*)(int64_t, ...))symbol;
            /* On aarch64 Linux variadic arguments lie where others do: what is not taken does no harm. */
            result = strcmp(command, "call") ? (int64_t)symbol
                                             : function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10],
                                                        a[11]);
        }
        printf("%" PRId64 "\n", result);
        fflush(stdout);
    }
    return 0;
}
