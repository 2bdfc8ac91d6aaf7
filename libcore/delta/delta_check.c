/* Looking at a chain: is everything there, does it fit together, do these weights equal the newest version. */
#include "delta/delta.h"
#include "delta/delta_int.h"

#include <stdlib.h>
#include <unistd.h>

/* Payload files of one version, each in memory once. */
static int check_payloads(struct sky_store *s, const struct sky_manifest *m, struct sky_delta_result *r, struct sky_err *err)
{
	char dir[32], key[512];
	int rc = 0;

	sky_delta_dir(dir, m->version);
	for (int64_t k = 0; k < m->n_file && rc == 0; k++) {
		struct sky_buf body = SKY_BUF_INIT(SIZE_MAX / 2);
		struct sky_st *st = NULL;

		snprintf(key, sizeof(key), "%s/%s", dir, m->file[k]);
		rc = sky_store_get(s, key, 0, UINT64_MAX, &body, err);
		rc = rc == SKY_E_MISSING ? sky_fail(err, SKY_E_DATA, "%s: listed by its manifest, not in the store", key) : rc;
		rc = rc < 0 ? rc : sky_st_parse(body.ptr, body.n, body.n, key, &st, err);
		for (int64_t i = 0; i < m->n_tensor && rc == 0; i++) {
			const struct sky_delta_tensor *t = &m->tensor[i];
			const struct sky_tensor *p;

			if (strcmp(t->file, m->file[k])) {
				continue;
			}
			p = sky_st_find(st, t->key);
			if (!p || p->dtype != SKY_U8 || p->n_dim != 1) {
				rc = sky_fail(err, SKY_E_DATA, "%s: no bytes under %s", key, t->key);
			} else {
				rc = frame_check(body.ptr + p->off, p->bytes, t->raw_bytes,
				                 t->name, err);
				r->frame_bytes += p->bytes;
				r->n_changed++;
			}
		}
		r->read_bytes += body.n;
		sky_st_close(st);
		sky_buf_release(&body);
	}
	return rc;
}

/* The directory holds the version that m describes. */
static int check_weights(const char *dir, const struct sky_manifest *m, struct sky_err *err)
{
	struct sky_hf *hf = NULL;
	char hash[65];
	int rc = sky_hf_open(dir, &hf, err);

	for (int64_t i = 0; i < m->n_tensor && rc == 0; i++) {
		const struct sky_delta_tensor *d = &m->tensor[i];
		const struct sky_tensor *t = sky_hf_find(hf, d->name);

		if (!t) {
			rc = sky_fail(err, SKY_E_DATA, "%s lacks tensor %s", dir, d->name);
		} else {
			frame_hash(d->sha256, t->data, t->bytes, hash);
			if (strcmp(hash, d->checksum)) {
				rc = sky_fail(err, SKY_E_DATA, "%s: tensor %s is not that of version %lld", dir, d->name,
				              (long long)m->version);
			}
		}
	}
	if (rc == 0 && *m->id.model) {
		rc = sky_model_hash(hf, hash, err);
		if (rc == 0 && strcmp(hash, m->id.model)) {
			rc = sky_fail(err, SKY_E_DATA, "%s is not the model of version %lld", dir, (long long)m->version);
		}
	}
	sky_hf_close(hf);
	return rc;
}

int sky_delta_verify(struct sky_store *s, const char *weights, int64_t version, struct sky_delta_result *r, struct sky_err *err)
{
	struct sky_delta_id id = { "", "", "", "" };
	int64_t newest = 0;
	int rc = sky_delta_newest(s, &newest, err);

	if (rc == 0 && newest == 0) {
		return sky_fail(err, SKY_E_MISSING, "%s holds no version", sky_store_url(s));
	}
	version = version > 0 ? version : newest;
	for (int64_t v = 1; v <= newest && rc == 0; v++) {
		struct sky_manifest m;

		rc = sky_manifest_get(s, v, &m, err);
		if (rc == SKY_E_MISSING) {
			rc = sky_fail(err, SKY_E_DATA,
			              "version %lld is missing from the chain, which goes up to %lld", (long long)v,
			              (long long)newest);
		}
		if (rc < 0) {
			return rc;
		}
		if (*m.id.run && *id.run && strcmp(m.id.run, id.run)) {
			rc = sky_fail(err, SKY_E_DATA, "version %lld belongs to another run than the one before it", (long long)v);
		}
		id = m.id;
		rc = rc < 0 ? rc : check_payloads(s, &m, r, err);
		if (rc == 0 && weights && v == version) {
			rc = check_weights(weights, &m, err);
		}
		sky_manifest_release(&m);
	}
	r->version = version;
	r->id = id;
	return rc;
}
