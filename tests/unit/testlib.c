/* The C harness itself: comparisons tell equal from different, paths and scratch files work. */
#include "tests/testlib.h"

int main(void)
{
	struct sky_err err = { SKY_E_DATA, 0, "a.bin: damaged" };
	const char *path;
	size_t n = 0;
	char *p;

	T_OK(t_diff_i64(-7, -7) && !t_diff_i64(1, 2), "integers are compared");
	T_OK(t_diff_str("a", "a") && !t_diff_str("a", "b") && !t_diff_str(NULL, "a") && t_diff_str(NULL, NULL),
	     "strings are compared");
	T_OK(t_diff_mem("abc", "abd", 2) && !t_diff_mem("abc", "abd", 3), "bytes are compared");
	T_OK(t_diff_near(1.0, 1.001, 0.01) && !t_diff_near(1.0, 1.1, 0.01), "a tolerance is kept");
	T_OK(t_diff_near(NAN, NAN, 0.0) && !t_diff_near(NAN, 1.0, 9.0) && !t_diff_near(1.0, NAN, 9.0),
	     "NaN equals only NaN");
	T_OK(t_diff_near(INFINITY, INFINITY, 0.0) && !t_diff_near(INFINITY, -INFINITY, 1e9), "infinities have a sign");
	T_OK(t_diff_has("a.bin: damaged", "damaged") && !t_diff_has("x", "y"), "parts of messages are found");
	T_OK(t_diff_rc(SKY_E_DATA, SKY_E_DATA, &err) && !t_diff_rc(SKY_E_DATA, 0, &err), "codes are compared");

	path = t_write("x.bin", "12\0" "4", 4);
	p = t_read(path, &n);
	T_OK(p && n == 4 && memcmp(p, "12\0" "4", 5) == 0, "a scratch file is written and read back");
	free(p);
	T_OK(access(t_src("tests/testlib.h"), R_OK) == 0, "files of the tree are found");
	T_OK(t_shared("no such thing") == NULL, "absent golden data gives NULL");
	return t_done();
}
