/* For tests: values out of JSON, so that a script needs no other program.
 *
 *	jsonq FILE[:N] .a.b[0].c        the value in the Nth line (default: the whole file is one document)
 *	jsonq -t FILE .a .b …           NDJSON to one line of tab-separated values a record (missing: empty)
 *
 * Strings come without quotes, containers compact; .length of a container is the number of its members. Status 1 when
 * the path leads nowhere. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

static struct sky_err err;

static _Noreturn void die(const char *text)
{
	fprintf(stderr, "jsonq: %s\n", text);
	exit(1);
}

static int64_t members(const struct sky_jnode *v)
{
	int64_t n = 0;

	for (v = sky_j_first(v); v; v = sky_j_next(v)) {
		n++;
	}
	return n;
}

/* Walks path; *length_p is set when it ends in .length of a container without such a member. */
static const struct sky_jnode *walk(const struct sky_jnode *v, const char *path, int64_t *length_p)
{
	char name[256];

	*length_p = -1;
	while (v && *path) {
		size_t n;

		if (*path == '[') {
			v = sky_j_at(v, (int64_t)strtoll(path + 1, NULL, 10));
			path += strcspn(path, "]");
			path += *path == ']';
			continue;
		}
		path += *path == '.';
		n = strcspn(path, ".[");
		if (*path == '"') {     /* ."key with.dots" */
			path++;
			n = strcspn(path, "\"");
		}
		if (n >= sizeof(name)) {
			return NULL;
		}
		memcpy(name, path, n);
		name[n] = '\0';
		path += n + (path[n] == '"');
		if (n == 0) {
			continue;
		}
		if (!sky_j_get(v, name) && strcmp(name, "length") == 0 && !*path) {
			*length_p = members(v);
			return v;
		}
		v = sky_j_get(v, name);
	}
	return v;
}

/* False when the path leads nowhere. tabs: keep the value on one line. */
static int print(const struct sky_jnode *root, const char *path, int tabs)
{
	struct sky_buf text = SKY_BUF_INIT(1u << 28);
	int64_t length;
	const struct sky_jnode *v = walk(root, path, &length);
	const char *s = sky_j_str(v);

	if (!v) {
		return 0;
	}
	if (length >= 0) {
		printf("%lld", (long long)length);
	} else if (s) {
		for (; *s; s++) {
			putchar(tabs && (*s == '\t' || *s == '\n') ? ' ' : *s);
		}
	} else if (sky_j_print(v, &text, &err) < 0) {
		die(err.msg);
	} else {
		fwrite(text.ptr, 1, text.n, stdout);
	}
	sky_buf_release(&text);
	return 1;
}

static struct sky_json *parse(const char *p, size_t n, const char *name)
{
	struct sky_json *doc = NULL;

	if (sky_json_parse(p, n, name, SKY_JSON_PYTHON, &doc, &err) < 0) {
		die(err.msg);
	}
	return doc;
}

/* The Nth line, from 1, or NULL. */
static char *line_at(char *p, long long n, size_t *len_p)
{
	while (p && --n > 0) {
		p = strchr(p, '\n');
		p = p ? p + 1 : NULL;
	}
	if (p && *p) {
		*len_p = strcspn(p, "\n");
		return p;
	}
	return NULL;
}

static void table(struct sky_buf *text, const char *file, char **paths, int n)
{
	char *p = text->ptr;
	int i;

	while (p && *p) {
		size_t len = strcspn(p, "\n");
		struct sky_json *doc = parse(p, len, file);

		for (i = 0; i < n; i++) {
			if (i > 0) {
				putchar('\t');
			}
			print(sky_json_root(doc), paths[i], 1);
		}
		putchar('\n');
		sky_json_free(doc);
		p += len + (p[len] == '\n');
	}
}

int main(int argc, char **argv)
{
	struct sky_buf text = SKY_BUF_INIT(1u << 28);
	char *colon, *p;
	size_t n;
	struct sky_json *doc;
	int found;

	if (argc < 3) {
		die("usage: jsonq FILE[:N] PATH, jsonq -t FILE PATH…");
	}
	if (strcmp(argv[1], "-t") == 0) {
		if (sky_file_read(argv[2], &text, &err) < 0) {
			die(err.msg);
		}
		table(&text, argv[2], argv + 3, argc - 3);
		sky_buf_release(&text);
		return 0;
	}
	colon = strrchr(argv[1], ':');
	if (colon) {
		*colon = '\0';
	}
	if (sky_file_read(argv[1], &text, &err) < 0) {
		die(err.msg);
	}
	p = text.ptr;
	n = text.n;
	if (colon && !(p = line_at(text.ptr, strtoll(colon + 1, NULL, 10), &n))) {
		die("no such line");
	}
	doc = parse(p, n, argv[1]);
	found = print(sky_json_root(doc), argv[2], 0);
	putchar('\n');
	sky_json_free(doc);
	sky_buf_release(&text);
	return found ? 0 : 1;
}
