/* CHECK(condition): ends the test with a message unless the condition holds. */
#ifndef CHECK_H
#define CHECK_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sunder_transport.h"

#define CHECK(condition)                                                                      \
    do {                                                                                      \
        if (!(condition)) {                                                                   \
            fprintf(stderr, "%s:%d: %s: error %d, %s\n", __FILE__, __LINE__, #condition,      \
                    (int)sunder_error_code(), sunder_error_text());                           \
            exit(1);                                                                          \
        }                                                                                     \
    } while (0)

/* The call fails with the code, and its text contains `part`. */
#define FAILS(call, code, part)                                                               \
    do {                                                                                      \
        CHECK((call) == (code));                                                              \
        said(code, part);                                                                     \
    } while (0)

/* The call returns NULL; the code and the text are as above. */
#define FAILS_NULL(call, code, part)                                                          \
    do {                                                                                      \
        CHECK((call) == NULL);                                                                \
        said(code, part);                                                                     \
    } while (0)

static inline void said(int32_t code, const char *part) {
    CHECK(sunder_error_code() == code);
    CHECK(strstr(sunder_error_text(), part) != NULL);
}

#endif
