/* For tests of the publish protocol: publish file|dir TARGET TEXT [replace], publish clean DIR -. Exits with the negated
 * code. */
#include <stdio.h>

#include "base/file.h"
#include "base/limits.h"

static int folder(const char *target, const char *text, unsigned flags, struct sky_err *err)
{
	struct sky_outdir o;
	char path[SKY_MAX_PATH];
	int rc, i;

	rc = sky_outdir_open(&o, target, flags, err);
	if (rc < 0) {
		return rc;
	}
	for (i = 0; rc == 0 && i < 2; i++) {
		snprintf(path, sizeof(path), "%s/f%d", o.tmp, i);
		rc = sky_file_publish(path, text, strlen(text), 0, err);
	}
	if (rc < 0) {
		sky_outdir_abort(&o);
		return rc;
	}
	return sky_outdir_commit(&o, err);
}

int main(int argc, char **argv)
{
	unsigned flags = argc > 4 ? SKY_OUT_REPLACE : 0;
	struct sky_err err = { 0 };
	int rc;

	if (argc < 4) {
		return 2;
	}
	rc = strcmp(argv[1], "clean") == 0 ? sky_clean_temps(argv[2], -1, &err) :
		strcmp(argv[1], "dir") == 0 ? folder(argv[2], argv[3], flags, &err) :
		sky_file_publish(argv[2], argv[3], strlen(argv[3]), flags, &err);
	if (rc < 0) {
		fprintf(stderr, "%s\n", err.msg);
	}
	return -rc;
}
