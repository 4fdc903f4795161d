/* Bytes, CRC-32C and record batches of format v2 for the load generators.
 *
 * A batch is built once. Between sends only its base sequence changes, and CRC is linear: flipping
 * bit k of the sequence flips a fixed pattern in the CRC. The 32 patterns are computed at start, so
 * that renewing a batch costs at most 32 XORs at any size.
 */
#ifndef LAKELOG_BATCH_H
#define LAKELOG_BATCH_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Format v2 of a record batch: where its fields are. */
enum { AT_LENGTH = 8, AT_MAGIC = 16, AT_CRC = 17, AT_ATTRIBUTES = 21, AT_SEQUENCE = 53,
       AT_COUNT = 57, BATCH_HEADER = 61 };

static inline void fail(const char *what, long code) {
  fprintf(stderr, "%s (%ld)\n", what, code);
  exit(1);
}

static inline double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

static inline void pause_ms(int ms) {
  nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, NULL);
}

/* --- bytes ------------------------------------------------------------------------------- */

static inline uint8_t *put(uint8_t *at, uint64_t value, int size) {
  for (int i = 0; i < size; i++) at[i] = value >> 8 * (size - 1 - i);
  return at + size;
}

static inline uint8_t *put_uvarint(uint8_t *at, uint32_t value) {
  for (; value >= 128; value >>= 7) *at++ = value | 128;
  *at++ = value;
  return at;
}

static inline uint8_t *put_bytes(uint8_t *at, const void *data, size_t size) {
  memcpy(at, data, size);
  return at + size;
}

static inline uint8_t *put_compact(uint8_t *at, const char *text) {
  size_t size = strlen(text);
  return put_bytes(put_uvarint(at, size + 1), text, size);
}

/* A message being read; running over its end is fatal, for a benchmark of garbage is worthless. */
struct reader { const uint8_t *at, *end; };

static inline const uint8_t *take(struct reader *in, size_t size) {
  const uint8_t *start = in->at;
  if ((size_t)(in->end - start) < size) fail("truncated response", size);
  in->at += size;
  return start;
}

static inline int64_t get(struct reader *in, int size) {
  const uint8_t *at = take(in, size);
  int64_t value = (int8_t)at[0];
  for (int i = 1; i < size; i++) value = (int64_t)((uint64_t)value << 8 | at[i]);
  return value;
}

static inline uint32_t get_uvarint(struct reader *in) {
  uint32_t value = 0;
  for (int shift = 0; shift < 35; shift += 7) {
    uint8_t byte = *take(in, 1);
    value |= (uint32_t)(byte & 127) << shift;
    if (byte < 128) return value;
  }
  fail("bad varint", 0);
  return 0;
}

/* The length of a compact array, string or byte field; null counts as empty. */
static inline uint32_t get_length(struct reader *in) {
  uint32_t size = get_uvarint(in);
  return size ? size - 1 : 0;
}

static inline void skip_compact(struct reader *in) { take(in, get_length(in)); }

static inline void skip_tags(struct reader *in) {
  for (uint32_t count = get_uvarint(in); count; count--) {
    get_uvarint(in);
    take(in, get_uvarint(in));
  }
}

/* The number of elements skipped. */
static inline uint32_t skip_int32s(struct reader *in) {
  uint32_t count = get_length(in);
  take(in, 4 * (size_t)count);
  return count;
}

/* --- CRC-32C ----------------------------------------------------------------------------- */

static uint32_t crc_table[256], sequence_patterns[32];

static inline void crc_prepare(void) {
  for (uint32_t i = 0; i < 256; i++) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; bit++) value = value >> 1 ^ (value & 1 ? 0x82F63B78u : 0);
    crc_table[i] = value;
  }
}

static inline uint32_t crc32c(const uint8_t *data, size_t size) {
  uint32_t value = ~0u;
  while (size--) value = value >> 8 ^ crc_table[(value ^ *data++) & 255];
  return ~value;
}

/* --- record batches ---------------------------------------------------------------------- */

/* Writes `count` records of equal size, about `size` bytes in all; returns the real size. */
static inline size_t build_batch(uint8_t *batch, size_t size, int count, int64_t producer_id,
                                 int epoch) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  int64_t timestamp = t.tv_sec * 1000 + t.tv_nsec / 1000000;
  int64_t room = ((int64_t)size - BATCH_HEADER) / count - 12;
  uint32_t value_size = room > 0 ? room : 0;
  uint8_t body[16], *at = batch + BATCH_HEADER;
  for (int i = 0; i < count; i++) {
    uint8_t *end = body;
    *end++ = 0;                                  /* attributes */
    *end++ = 0;                                  /* timestamp delta */
    end = put_uvarint(end, 2 * (uint32_t)i);     /* offset delta, zigzag */
    *end++ = 1;                                  /* key: null */
    end = put_uvarint(end, 2 * value_size);
    at = put_uvarint(at, 2 * (uint32_t)(end - body + value_size + 1));
    at = put_bytes(at, body, end - body);
    for (uint32_t k = 0; k < value_size; k++) *at++ = 'a' + (k * 7 + i) % 26;
    *at++ = 0;                                   /* no headers */
  }
  size_t total = at - batch;
  put(put(batch, 0, 8), total - 12, 4);
  put(batch + 12, -1, 4);
  batch[AT_MAGIC] = 2;
  at = put(put(batch + AT_ATTRIBUTES, 0, 2), count - 1, 4);
  at = put(put(put(at, timestamp, 8), timestamp, 8), producer_id, 8);
  put(put(put(at, epoch, 2), 0, 4), count, 4);
  put(batch + AT_CRC, crc32c(batch + AT_ATTRIBUTES, total - AT_ATTRIBUTES), 4);
  return total;
}

static inline void learn_sequence_patterns(uint8_t *batch, size_t size) {
  uint32_t plain = crc32c(batch + AT_ATTRIBUTES, size - AT_ATTRIBUTES);
  for (int bit = 0; bit < 32; bit++) {
    put(batch + AT_SEQUENCE, 1u << bit, 4);
    sequence_patterns[bit] = plain ^ crc32c(batch + AT_ATTRIBUTES, size - AT_ATTRIBUTES);
  }
  put(batch + AT_SEQUENCE, 0, 4);
}

static inline void set_sequence(uint8_t *batch, uint32_t plain_crc, uint32_t sequence) {
  uint32_t crc = plain_crc;
  for (int bit = 0; bit < 32; bit++)
    if (sequence >> bit & 1) crc ^= sequence_patterns[bit];
  put(batch + AT_SEQUENCE, sequence, 4);
  put(batch + AT_CRC, crc, 4);
}

#endif
