/* Every stated maximum of the toolkit, in one place. */
#ifndef SKY_BASE_LIMITS_H
#define SKY_BASE_LIMITS_H

#define SKY_MAX_LINE_BYTES      (256ull << 20)  /* one input row, default of --max-line */
#define SKY_MAX_RECORD_BYTES    (1ull << 20)    /* one NDJSON record between programs */
#define SKY_MAX_JSON_DEPTH      64
#define SKY_MAX_JSON_BYTES      (512ull << 20)  /* one JSON document: configuration, manifest, tokenizer.json */
#define SKY_MAX_HEADER_BYTES    100000000ull    /* safetensors header, as the reference reader */
#define SKY_MAX_PATH            4096
#define SKY_MAX_THREADS         512

#endif
