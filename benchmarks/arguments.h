/* The arguments of a load generator, each `name=value`, and what it prints in the end. */
#ifndef LAKELOG_ARGUMENTS_H
#define LAKELOG_ARGUMENTS_H
#include "batch.h"

/* A number within bounds, or a text if `text` is set. The last of a list has no name. */
struct argument {
  const char *name;
  int64_t *number, low, high;
  const char **text;
};

static inline int64_t number(const char *name, const char *text, int64_t low, int64_t high) {
  char *end;
  int64_t value = strtoll(text, &end, 10);
  if (end == text || *end || value < low || value > high) {
    fprintf(stderr, "%s=%s is not a number from %lld to %lld\n", name, text, (long long)low,
            (long long)high);
    exit(2);
  }
  return value;
}

static inline void parse(const struct argument *known, char **given) {
  for (; *given; given++) {
    char *text = strchr(*given, '=');
    if (!text) fail("arguments are name=value", 0);
    *text++ = 0;
    const struct argument *found = known;
    while (found->name && strcmp(found->name, *given)) found++;
    if (!found->name) fail(*given, 0);
    if (found->text) *found->text = text;
    else *found->number = number(found->name, text, found->low, found->high);
  }
}

/* --- samples ----------------------------------------------------------------------------- */

enum { MAX_SAMPLES = 1 << 22 };

/* All latencies in seconds, in single precision: quantiles are exact. */
static float *samples;
static int64_t sample_count;

static inline void note_sample(double seconds) {
  if (!samples) samples = malloc(MAX_SAMPLES * sizeof *samples);
  if (sample_count < MAX_SAMPLES) samples[sample_count++] = seconds;
}

static inline int by_value(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

/* One JSON object; `more` is what it has beside, as `, "name": value`. */
static inline void report(double elapsed, int64_t bytes, int64_t requests, const char *more) {
  if (!sample_count) fail("no request was answered", 0);
  qsort(samples, sample_count, sizeof *samples, by_value);
  printf("{\"seconds\": %.6f, \"bytes\": %lld, \"requests\": %lld, \"p50_ms\": %.4f, "
         "\"p99_ms\": %.4f%s}\n", elapsed, (long long)bytes, (long long)requests,
         samples[sample_count / 2] * 1e3, samples[sample_count * 99 / 100] * 1e3, more);
}

#endif
