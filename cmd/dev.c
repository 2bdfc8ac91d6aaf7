/* Choice of the kernel table. The only file outside kernels/ that knows which backends were built. */
#include "cmd/dev.h"

#include <string.h>

#include "cmd/cmd.h"

enum { DEV_CPU, DEV_REF };

static int device;

const struct opt_row cmd_dev_rows[] = {
	OPT_CHOICE(0, "device", &device, "cpu|ref", "cpu", "where to compute: vector code, or the plain reference"),
	OPT_END
};

int cmd_dev_open(struct cmd_dev *d, struct sky_err *err)
{
	const struct kn_ops *ops = device == DEV_CPU ? kn_cpu_ops() : kn_ref_ops();

	if (!ops) {
		cmd_note("the cpu backend cannot run on this processor; using ref, which is slow");
		ops = kn_ref_ops();
	}
	if (ops->abi != KN_ABI || ops->size != sizeof(*ops)) {
		return sky_fail(err, SKY_E_DEVICE,
				"device %s: built for another kernel interface; build all of it again", ops->name);
	}
	d->dev = NULL;
	if (ops->open(0, (int32_t)cmd.threads, &d->dev) < 0) {
		return sky_fail(err, SKY_E_DEVICE, "device %s: %s", ops->name, ops->last_error(NULL));
	}
	d->ops = ops;
	cmd_verbose(1, "device %s: %s, %lld threads", ops->name, ops->describe(d->dev), (long long)cmd.threads);
	return 0;
}

void cmd_dev_close(struct cmd_dev *d)
{
	if (d->ops) {
		d->ops->close(d->dev);
	}
	memset(d, 0, sizeof(*d));
}

void cmd_dev_describe(void)
{
	struct sky_err err = { 0, 0, "" };
	const struct kn_ops *list[] = { kn_cpu_ops(), kn_ref_ops() };
	size_t i;

	for (i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		kn_dev *dev = NULL;

		if (list[i] && list[i]->open(0, 1, &dev) == 0) {
			if (cmd_outf(&err, "device %-5s %s\n", list[i]->name, list[i]->describe(dev)) < 0) {
				cmd_error("%s", err.msg);
			}
			list[i]->close(dev);
		}
	}
}
