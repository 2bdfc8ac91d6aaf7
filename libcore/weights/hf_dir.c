/* Reader of a Hugging Face directory. The index decides which files belong to it; name patterns do not. */
#include "weights/weights_int.h"

#define INDEX_SUFFIX ".safetensors.index.json"

struct sky_hf {
	char *dir;
	char **files;                   /* relative names, sorted by bytes */
	struct sky_st **st;             /* (n_files) */
	int64_t n_files;
	struct sky_tensor *tensors;     /* sorted by name; names are owned by st */
	int64_t n;
	struct sky_nametab tab;
};

int sky_hf_plain_name(const char *name)
{
	const char *p = name;
	size_t n;

	if (!*name || *name == '/') {
		return 0;
	}
	for (;;) {
		n = strcspn(p, "/");
		if (n == 0 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.')) {
			return 0;
		}
		p += n;
		if (!*p) {
			return 1;
		}
		p++;
	}
}

static int has_suffix(const char *name, const char *suffix)
{
	size_t n = strlen(name), m = strlen(suffix);

	return n > m && strcmp(name + n - m, suffix) == 0;
}

/* Which name of the folder to start from: an index, else the only safetensors file. malloc'ed. */
static int pick(const char *dir, char **name_p, struct sky_err *err)
{
	const char *index = NULL, *single = NULL;
	size_t n, i, n_index = 0, n_single = 0;
	char **names;
	int rc;

	rc = sky_list_dir(dir, &names, &n, err);
	if (rc < 0) {
		return rc;
	}
	for (i = 0; i < n; i++) {
		if (names[i][0] == '.') {
			continue;
		}
		if (has_suffix(names[i], INDEX_SUFFIX)) {
			n_index = strcmp(names[i], "model" INDEX_SUFFIX) == 0 ? 1 : n_index + 1;
			index = names[i];
			if (strcmp(names[i], "model" INDEX_SUFFIX) == 0) {
				break;
			}
		} else if (has_suffix(names[i], ".safetensors")) {
			n_single++;
			if (!single || strcmp(names[i], "model.safetensors") == 0) {
				single = names[i];
			}
		}
	}
	if (n_index > 1) {
		rc = sky_fail(err, SKY_E_DATA,
		              "%s has %zu files *" INDEX_SUFFIX " and none is named model" INDEX_SUFFIX, dir, n_index);
	} else if (!index && !single) {
		rc = sky_fail(err, SKY_E_MISSING, "%s holds no weights (model.safetensors or model" INDEX_SUFFIX ")",
		              dir);
	} else if (!index && n_single > 1 && strcmp(single, "model.safetensors") != 0) {
		rc = sky_fail(err, SKY_E_DATA, "%s has %zu safetensors files but no index (model" INDEX_SUFFIX ")",
		              dir, n_single);
	} else {
		*name_p = strdup(index ? index : single);
		rc = *name_p ? 0 : sky_fail_mem(err, "opening %s", dir);
	}
	sky_names_free(names, n);
	return rc;
}

static int by_bytes(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct sky_tensor *)a)->name, ((const struct sky_tensor *)b)->name);
}

/* The different files of weight_map into hf->files. */
static int files_of_index(struct sky_hf *hf, const char *index, const struct sky_jnode *map, struct sky_err *err)
{
	const struct sky_jnode *k;
	const char **all;
	size_t n = sky_j_len(map), i = 0;
	int rc = 0;

	if (sky_j_type(map) != SKY_J_OBJECT || n == 0) {
		return sky_fail(err, SKY_E_DATA, "%s: \"weight_map\" must be an object with at least one tensor",
		                index);
	}
	all = sky_malloc_array(n, sizeof(*all));
	hf->files = sky_calloc_array(n, sizeof(*hf->files));
	if (!all || !hf->files) {
		rc = sky_fail_mem(err, "reading %s", index);
	}
	for (k = sky_j_first(map); rc == 0 && k; k = sky_j_next(k)) {
		all[i] = sky_j_str(k);
		if (!all[i] || !sky_hf_plain_name(all[i])) {
			rc = sky_fail(err, SKY_E_DATA,
			              "%s: the file of tensor \"%.200s\" must be a name inside the folder", index,
			              sky_j_key(k));
		}
		i++;
	}
	if (rc == 0) {
		qsort(all, n, sizeof(*all), by_bytes);
	}
	for (i = 0; rc == 0 && i < n; i++) {
		if (i > 0 && strcmp(all[i], all[i - 1]) == 0) {
			continue;
		}
		hf->files[hf->n_files] = strdup(all[i]);
		if (!hf->files[hf->n_files++]) {
			rc = sky_fail_mem(err, "reading %s", index);
		}
	}
	free(all);
	return rc;
}

static int open_files(struct sky_hf *hf, const char *index, struct sky_err *err)
{
	char path[SKY_MAX_PATH];
	int64_t i;
	int rc;

	hf->st = sky_calloc_array((size_t)hf->n_files, sizeof(*hf->st));
	if (!hf->st) {
		return sky_fail_mem(err, "opening %s", hf->dir);
	}
	for (i = 0; i < hf->n_files; i++) {
		rc = sky_path_join(path, sizeof(path), hf->dir, hf->files[i], err);
		if (rc < 0) {
			return rc;
		}
		if (index && !sky_file_exists(path)) {
			/* Promised by the index: the folder is damaged, not merely absent. */
			return sky_fail(err, SKY_E_DATA,
			                "%s names %s, which is missing: the folder is incomplete, copy or download it "
			                "again", index, hf->files[i]);
		}
		rc = sky_st_open(path, &hf->st[i], err);
		if (rc < 0) {
			return rc;
		}
		hf->n += sky_st_count(hf->st[i]);
	}
	return 0;
}

static int collect(struct sky_hf *hf, struct sky_err *err)
{
	int64_t i, j, n = 0, dup = 0;
	int rc;

	hf->tensors = sky_malloc_array((size_t)hf->n, sizeof(*hf->tensors));
	if (!hf->tensors) {
		return sky_fail_mem(err, "opening %s", hf->dir);
	}
	for (i = 0; i < hf->n_files; i++) {
		for (j = 0; j < sky_st_count(hf->st[i]); j++) {
			hf->tensors[n] = *sky_st_at(hf->st[i], j);
			hf->tensors[n++].file = (int32_t)i;
		}
	}
	qsort(hf->tensors, (size_t)n, sizeof(*hf->tensors), by_name);
	rc = sky_nametab_build(&hf->tab, hf->tensors, n, &dup, err);
	if (rc == SKY_E_DATA) {
		return sky_fail(err, SKY_E_DATA, "%s: tensor \"%.200s\" is in %s and in %s", hf->dir,
		                hf->tensors[dup].name,
		                hf->files[hf->tensors[dup - 1].file], hf->files[hf->tensors[dup].file]);
	}
	return rc;
}

/* Every tensor of the index must lie where it says. */
static int check_index(const struct sky_hf *hf, const char *index, const struct sky_jnode *map, struct sky_err *err)
{
	const struct sky_jnode *k;
	const struct sky_tensor *t;

	for (k = sky_j_first(map); k; k = sky_j_next(k)) {
		t = sky_hf_find(hf, sky_j_key(k));
		if (!t || strcmp(hf->files[t->file], sky_j_str(k)) != 0) {
			return sky_fail(err, SKY_E_DATA, "%s: tensor \"%.200s\" is not in %s%s%s", index,
			                sky_j_key(k), sky_j_str(k),
			                t ? " but in " : "", t ? hf->files[t->file] : "");
		}
	}
	return 0;
}

static int open_indexed(struct sky_hf *hf, const char *name, struct sky_err *err)
{
	char path[SKY_MAX_PATH];
	const struct sky_jnode *map;
	struct sky_json *doc = NULL;
	int rc;

	rc = sky_path_join(path, sizeof(path), hf->dir, name, err);
	if (rc == 0) {
		rc = sky_json_load(path, SKY_JSON_NO_DUP, &doc, err);
	}
	if (rc < 0) {
		return rc;
	}
	map = sky_j_get(sky_json_root(doc), "weight_map");
	rc = files_of_index(hf, path, map, err);
	if (rc == 0) {
		rc = open_files(hf, path, err);
	}
	if (rc == 0) {
		rc = collect(hf, err);
	}
	if (rc == 0) {
		rc = check_index(hf, path, map, err);
	}
	sky_json_free(doc);
	return rc;
}

static int open_single(struct sky_hf *hf, const char *name, struct sky_err *err)
{
	int rc;

	hf->files = sky_calloc_array(1, sizeof(*hf->files));
	if (!hf->files || !(hf->files[0] = strdup(name))) {
		return sky_fail_mem(err, "opening %s", hf->dir);
	}
	hf->n_files = 1;
	rc = open_files(hf, NULL, err);
	return rc < 0 ? rc : collect(hf, err);
}

int sky_hf_open(const char *dir, struct sky_hf **hf_p, struct sky_err *err)
{
	char path[SKY_MAX_PATH], *name = NULL;
	struct sky_hf *hf;
	int rc;

	rc = sky_hf_resolve(dir, path, sizeof(path), err);
	if (rc < 0) {
		return rc;
	}
	hf = calloc(1, sizeof(*hf));
	if (!hf || !(hf->dir = strdup(path))) {
		free(hf);
		return sky_fail_mem(err, "opening %s", path);
	}
	rc = pick(path, &name, err);
	if (rc == 0) {
		rc = has_suffix(name, INDEX_SUFFIX) ? open_indexed(hf, name, err) : open_single(hf, name, err);
	}
	free(name);
	if (rc < 0) {
		sky_hf_close(hf);
		return rc;
	}
	*hf_p = hf;
	return 0;
}

void sky_hf_close(struct sky_hf *hf)
{
	int64_t i;

	if (!hf) {
		return;
	}
	sky_nametab_release(&hf->tab);
	free(hf->tensors);
	for (i = 0; i < hf->n_files; i++) {
		if (hf->st) {
			sky_st_close(hf->st[i]);
		}
		free(hf->files[i]);
	}
	free(hf->st);
	free(hf->files);
	free(hf->dir);
	free(hf);
}

const char *sky_hf_dir(const struct sky_hf *hf)
{
	return hf->dir;
}

int64_t sky_hf_count(const struct sky_hf *hf)
{
	return hf->n;
}

const struct sky_tensor *sky_hf_at(const struct sky_hf *hf, int64_t i)
{
	return i >= 0 && i < hf->n ? &hf->tensors[i] : NULL;
}

const struct sky_tensor *sky_hf_find(const struct sky_hf *hf, const char *name)
{
	return sky_hf_at(hf, sky_nametab_find(&hf->tab, name));
}

int64_t sky_hf_n_files(const struct sky_hf *hf)
{
	return hf->n_files;
}

const char *sky_hf_file(const struct sky_hf *hf, int64_t i)
{
	return i >= 0 && i < hf->n_files ? hf->files[i] : NULL;
}
