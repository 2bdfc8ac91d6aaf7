/* families: the table of model families, and the look-up by the two strings of config.json. */
#include "model/model_int.h"

#include <stdio.h>
#include <string.h>

extern const struct sky_family sky_family_llama, sky_family_qwen2, sky_family_qwen3;

const struct sky_family *const sky_families[] = {
	&sky_family_llama,
	&sky_family_qwen2,
	&sky_family_qwen3,
	NULL,
};

static void list(char *out, size_t cap)
{
	size_t n = 0;

	out[0] = 0;
	for (size_t i = 0; sky_families[i] && n < cap; i++) {
		n += (size_t)snprintf(out + n, cap - n, "%s%s", i ? ", " : "",
				      sky_families[i]->architecture);
	}
}

int sky_family_find(const struct sky_conf *c, const struct sky_family **f_p, struct sky_err *err)
{
	char known[512];

	for (size_t i = 0; sky_families[i]; i++) {
		const struct sky_family *f = sky_families[i];

		/* Some old configurations carry no list of architectures; a list that names another
		 * head is refused. */
		if (strcmp(c->pub.family, f->model_type) == 0 &&
		    (!*c->arch || strcmp(c->arch, f->architecture) == 0)) {
			*f_p = f;
			return 0;
		}
	}
	list(known, sizeof known);
	return sky_fail(
		err, SKY_E_DATA,
		"%s: architecture \"%s\" with model_type \"%s\" is not supported; supported are %s",
		c->path, c->arch, c->pub.family, known);
}
