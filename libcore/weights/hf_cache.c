/* From the name of a model to its folder: a path, or org/name in the Hugging Face cache. Nothing is downloaded. */
#include "weights/weights_int.h"

#include <ctype.h>

/* Folder of the cache, by the rules of huggingface_hub. */
static int cache_dir(char *out, size_t cap, struct sky_err *err)
{
	const char *v;
	int n;

	if (((v = getenv("HF_HUB_CACHE")) && *v) || ((v = getenv("HUGGINGFACE_HUB_CACHE")) && *v)) {
		n = snprintf(out, cap, "%s", v);
	} else if ((v = getenv("HF_HOME")) && *v) {
		n = snprintf(out, cap, "%s/hub", v);
	} else if ((v = getenv("XDG_CACHE_HOME")) && *v) {
		n = snprintf(out, cap, "%s/huggingface/hub", v);
	} else if ((v = getenv("HOME")) && *v) {
		n = snprintf(out, cap, "%s/.cache/huggingface/hub", v);
	} else {
		return sky_fail(err, SKY_E_MISSING,
		                "the Hugging Face cache is not known: set HF_HOME (HOME is not set either)");
	}
	return n < 0 || (size_t)n >= cap ? sky_fail(err, SKY_E_LIMIT,
	                                            "the path of the Hugging Face cache is too long") : 0;
}

/* One part of org/name. */
static size_t part_len(const char *s)
{
	size_t n = 0;

	while (isalnum((unsigned char)s[n]) || (n > 0 && (s[n] == '-' || s[n] == '_' || s[n] == '.'))) {
		n++;
	}
	return n;
}

/* name, org/name, either with @revision. Writes models--org--name and points *rev_p at the revision (NULL when none). */
static int split_id(const char *id, char *repo, size_t cap, const char **rev_p)
{
	size_t a = part_len(id), b = 0;
	const char *rest = id + a;
	int n;

	if (a == 0) {
		return -1;
	}
	if (*rest == '/') {
		b = part_len(rest + 1);
		rest += 1 + b;
		if (b == 0) {
			return -1;
		}
	}
	if (*rest != '\0' && !(*rest == '@' && part_len(rest + 1) == strlen(rest + 1) && rest[1])) {
		return -1;
	}
	*rev_p = *rest ? rest + 1 : NULL;
	n = snprintf(repo, cap, "models--%.*s%s%.*s", (int)a, id, b ? "--" : "", (int)b, b ? id + a + 1 : "");
	return n < 0 || (size_t)n >= cap ? -1 : 0;
}

static int absent(const char *id, const char *cache, struct sky_err *err)
{
	size_t n = strcspn(id, "@");

	return sky_fail(err, SKY_E_MISSING,
	                "%.200s: no such folder, and no such model in the Hugging Face cache %.300s; "
	                "\"hf download %.*s\" fetches it", id, cache, n > 200 ? 200 : (int)n, id);
}

/* refs/REV holds a commit; a full commit id names its snapshot directly. */
static int snapshot(const char *base, const char *rev, char *out, size_t cap, struct sky_err *err)
{
	struct sky_buf b = SKY_BUF_INIT(256);
	char ref[SKY_MAX_PATH];
	int n, rc;

	n = snprintf(ref, sizeof(ref), "%s/refs/%s", base, rev);
	if (n < 0 || (size_t)n >= sizeof(ref)) {
		return sky_fail(err, SKY_E_LIMIT, "path %.200s is too long", base);
	}
	if (sky_file_exists(ref)) {
		rc = sky_file_read(ref, &b, err);
		if (rc < 0) {
			sky_buf_release(&b);
			return rc;
		}
		while (b.n > 0 && isspace((unsigned char)b.ptr[b.n - 1])) {
			b.ptr[--b.n] = '\0';
		}
		rev = b.n > 0 && part_len(b.ptr) == b.n ? b.ptr : "";
	}
	n = snprintf(out, cap, "%s/snapshots/%s", base, rev);
	rc = n < 0 || (size_t)n >= cap || !*rev || !sky_is_dir(out) ? -1 : 0;
	sky_buf_release(&b);
	return rc < 0 ? sky_fail(err, SKY_E_MISSING, "%s has no snapshot for \"%.60s\" (the download did not finish)",
	                         base,
	                         ref + strlen(base) + 6) : 0;
}

int sky_hf_resolve(const char *name, char *out, size_t cap, struct sky_err *err)
{
	char cache[SKY_MAX_PATH - 600], repo[500], base[SKY_MAX_PATH];
	const char *rev;
	int rc;

	if (sky_is_dir(name)) {
		return sky_path_join(out, cap, "", name, err);
	}
	if (sky_file_exists(name)) {
		return sky_fail(err, SKY_E_USAGE, "%s is a file; a model folder is expected", name);
	}
	if (split_id(name, repo, sizeof(repo), &rev) != 0) {
		return sky_fail(err, SKY_E_MISSING, "%s: no such folder", name);
	}
	rc = cache_dir(cache, sizeof(cache), err);
	if (rc < 0) {
		return sky_while(err, rc, "%s: no such folder", name);
	}
	snprintf(base, sizeof(base), "%s/%s", cache, repo);
	if (!sky_is_dir(base)) {
		return absent(name, cache, err);
	}
	return sky_while(err, snapshot(base, rev ? rev : "main", out, cap, err), "%s", name);
}
