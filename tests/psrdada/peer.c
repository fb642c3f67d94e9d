// Writer and reader of a ring by PSRDADA's C library.
//
//   peer create KEY BLOCKS BLOCK_BYTES READERS
//   peer write KEY TRANSFERS BYTES PIECE
//   peer read KEY TRANSFERS BYTES PIECE
//   peer destroy KEY
//
// Bytes of a transfer are those of tests/ring_psrdada.rs.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ascii_header.h"
#include "dada_hdu.h"

static unsigned char sample(uint64_t transfer, uint64_t at) {
    return (unsigned char)((at * 2654435761u) >> 7) ^ (unsigned char)transfer;
}

static void fail(const char *words) {
    fprintf(stderr, "peer: %s\n", words);
    exit(1);
}

static dada_hdu_t *attach(unsigned key) {
    dada_hdu_t *hdu = dada_hdu_create(0);
    dada_hdu_set_key(hdu, (key_t)key);
    if (dada_hdu_connect(hdu) < 0) fail("cannot attach");
    return hdu;
}

static void write_transfers(dada_hdu_t *hdu, uint64_t transfers, uint64_t bytes, uint64_t piece) {
    char *data = malloc(bytes + 1);
    for (uint64_t transfer = 0; transfer < transfers; transfer++) {
        if (dada_hdu_lock_write(hdu) < 0) fail("cannot lock for writing");
        char *header = ipcbuf_get_next_write(hdu->header_block);
        if (!header) fail("no header block");
        uint64_t size = ipcbuf_get_bufsz(hdu->header_block);
        memset(header, 0, size);
        ascii_header_set(header, "HDR_SIZE", "%" PRIu64, size);
        ascii_header_set(header, "FILE_NUMBER", "%" PRIu64, transfer);
        if (ipcbuf_mark_filled(hdu->header_block, size) < 0) fail("cannot fill the header");
        for (uint64_t at = 0; at < bytes; at++) data[at] = (char)sample(transfer, at);
        for (uint64_t at = 0; at < bytes; at += piece) {
            uint64_t count = bytes - at < piece ? bytes - at : piece;
            if (ipcio_write(hdu->data_block, data + at, count) != (ssize_t)count) fail("short write");
        }
        if (dada_hdu_unlock_write(hdu) < 0) fail("cannot end");
    }
}

static void read_transfers(dada_hdu_t *hdu, uint64_t transfers, uint64_t bytes, uint64_t piece) {
    char *data = malloc(piece);
    for (uint64_t transfer = 0; transfer < transfers; transfer++) {
        if (dada_hdu_lock_read(hdu) < 0) fail("cannot lock for reading");
        if (dada_hdu_open(hdu) < 0) fail("no header");
        uint64_t found = 0, at = 0;
        if (ascii_header_get(hdu->header, "FILE_NUMBER", "%" PRIu64, &found) != 1 || found != transfer)
            fail("another header");
        while (!ipcbuf_eod((ipcbuf_t *)hdu->data_block)) {
            ssize_t count = ipcio_read(hdu->data_block, data, piece);
            if (count < 0) fail("cannot read");
            for (ssize_t i = 0; i < count; i++, at++)
                if ((unsigned char)data[i] != sample(transfer, at)) fail("other bytes");
        }
        if (at != bytes) fail("another length");
        if (dada_hdu_unlock_read(hdu) < 0) fail("cannot unlock");
        // This version frees the header and keeps its size, so that the next one would be copied to a null pointer.
        hdu->header_size = 0;
    }
}

int main(int count, char **words) {
    if (count < 3) fail("create | write | read | destroy");
    unsigned key = (unsigned)strtoul(words[2], 0, 16);
    uint64_t numbers[3] = {0, 0, 0};
    for (int at = 3; at < count && at < 6; at++) numbers[at - 3] = strtoull(words[at], 0, 10);
    if (!strcmp(words[1], "create")) {
        ipcbuf_t headers = IPCBUF_INIT, data = IPCBUF_INIT;
        if (ipcbuf_create(&data, (key_t)key, numbers[0], numbers[1], (unsigned)numbers[2]) < 0 ||
            ipcbuf_create(&headers, (key_t)(key + 1), 8, 4096, (unsigned)numbers[2]) < 0)
            fail("cannot create");
    } else if (!strcmp(words[1], "write")) {
        write_transfers(attach(key), numbers[0], numbers[1], numbers[2]);
    } else if (!strcmp(words[1], "read")) {
        read_transfers(attach(key), numbers[0], numbers[1], numbers[2]);
    } else if (!strcmp(words[1], "destroy")) {
        dada_hdu_t *hdu = attach(key);
        if (ipcio_destroy(hdu->data_block) < 0 || ipcbuf_destroy(hdu->header_block) < 0) fail("cannot destroy");
    } else {
        fail("create | write | read | destroy");
    }
    return 0;
}
