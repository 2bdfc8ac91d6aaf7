/* Starting servers on 127.0.0.1 for unit tests. Our own is tests/fake/s3d below the build folder; real ones come from
 * the folder $SKYRL_TEST_SERVERS (a virtual environment's bin). All are killed by server_stop_all, and by their
 * parent's end. */
#ifndef SKY_TESTS_SERVER_H
#define SKY_TESTS_SERVER_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/testlib.h"

static pid_t servers[16];
static int n_servers;

/* Path of a real server's program, or NULL. */
T_UNUSED static const char *server_find(const char *name)
{
	const char *dir = getenv("SKYRL_TEST_SERVERS");
	static char path[4096];

	if (!dir || !*dir) {
		return NULL;
	}
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return access(path, X_OK) == 0 ? path : NULL;
}

T_UNUSED static int server_free_port(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(a);
	int s = socket(AF_INET, SOCK_STREAM, 0), port = 0;

	if (s >= 0 && bind(s, (struct sockaddr *)&a, sizeof(a)) == 0 &&
	    getsockname(s, (struct sockaddr *)&a, &n) == 0) {
		port = ntohs(a.sin_port);
	}
	close(s);
	return port;
}

T_UNUSED static int server_answers(int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
		                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
		                 .sin_port = htons((uint16_t)port) };
	int s = socket(AF_INET, SOCK_STREAM, 0);
	int ok = s >= 0 && connect(s, (struct sockaddr *)&a, sizeof(a)) == 0;

	close(s);
	return ok;
}

/* Runs argv with stdin from a pipe that we keep, and stdout to *out_p when given. */
T_UNUSED static pid_t server_spawn(const char *const argv[], int *out_p)
{
	int in[2], out[2];
	pid_t pid;

	if (pipe(in) < 0 || pipe(out) < 0 || n_servers == 16) {
		t_bail("no pipe for a server");
	}
	pid = fork();
	if (pid == 0) {
		int null = open("/dev/null", O_RDWR);

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setpgid(0, 0);
		dup2(in[0], 0);
		dup2(out_p ? out[1] : null, 1);
		if (!getenv("SKYRL_TEST_SERVER_LOG")) {
			dup2(null, 2);
		}
		for (int i = 3; i < 64; i++) {
			close(i);
		}
		execv(argv[0], (char *const *)(uintptr_t)argv);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	if (out_p) {
		*out_p = out[0];
	} else {
		close(out[0]);
	}
	fcntl(in[1], F_SETFD, FD_CLOEXEC);
	servers[n_servers++] = pid;
	return pid;
}

/* The fault-injecting server; returns its port. opt: up to four more arguments, or NULL. */
T_UNUSED static int server_s3d(const char *o1, const char *o2, const char *o3, const char *o4)
{
	char path[4096], line[32] = "";
	const char *argv[] = { path, o1, o2, o3, o4, NULL };
	int out, n = 0;

	snprintf(path, sizeof(path), "./tests/fake/s3d");
	server_spawn(argv, &out);
	while (n < 31 && read(out, line + n, 1) == 1 && line[n] != '\n') {
		n++;
	}
	close(out);
	return (int)strtol(line, NULL, 10);
}

/* Starts a real server and waits until it listens; 0 when it does not within a minute and a half. */
T_UNUSED static int server_start(const char *const argv[], int port)
{
	pid_t pid = server_spawn(argv, NULL);

	for (int i = 0; i < 1800; i++) {
		if (server_answers(port)) {
			return 1;
		}
		if (waitpid(pid, NULL, WNOHANG) == pid) {
			return 0;
		}
		usleep(50000);
	}
	return 0;
}

T_UNUSED static void server_stop_all(void)
{
	for (int i = 0; i < n_servers; i++) {
		kill(-servers[i], SIGKILL);
		kill(servers[i], SIGKILL);
		waitpid(servers[i], NULL, 0);
	}
	n_servers = 0;
}

/* Sends a whole request that asks for the connection to be closed; the answer's body comes in a static buffer. */
T_UNUSED static const char *server_raw(int port, const char *request)
{
	static char answer[4096];
	struct sockaddr_in a = { .sin_family = AF_INET,
		                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
		                 .sin_port = htons((uint16_t)port) };
	int s = socket(AF_INET, SOCK_STREAM, 0);
	size_t n = 0;
	ssize_t k;
	char *body;

	if (s < 0 || connect(s, (struct sockaddr *)&a, sizeof(a)) < 0) {
		t_bail("no connection to port %d", port);
	}
	dprintf(s, "%s", request);
	while (n < sizeof(answer) - 1 && (k = read(s, answer + n, sizeof(answer) - 1 - n)) > 0) {
		n += (size_t)k;
	}
	close(s);
	answer[n] = '\0';
	body = strstr(answer, "\r\n\r\n");
	return body ? body + 4 : "";
}

T_UNUSED static const char *server_request(int port, const char *method, const char *path)
{
	char text[1024];

	snprintf(text, sizeof(text), "%s %s HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
	         method, path);
	return server_raw(port, text);
}

T_UNUSED static const char *server_get(int port, const char *path)
{
	return server_request(port, "GET", path);
}

/* An environment in which only the test decides about keys and settings. */
T_UNUSED static void server_clean_env(void)
{
	static const char *const names[] = { "AWS_PROFILE",
		                             "AWS_DEFAULT_PROFILE",
		                             "AWS_SESSION_TOKEN",
		                             "AWS_REGION",
		                             "AWS_DEFAULT_REGION",
		                             "AWS_ENDPOINT_URL",
		                             "AWS_ENDPOINT_URL_S3",
		                             "AWS_CONFIG_FILE",
		                             "AWS_SHARED_CREDENTIALS_FILE",
		                             "AWS_WEB_IDENTITY_TOKEN_FILE",
		                             "AWS_ROLE_ARN",
		                             "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
		                             "AWS_CA_BUNDLE",
		                             "AWS_CONTAINER_CREDENTIALS_FULL_URI",
		                             "GOOGLE_APPLICATION_CREDENTIALS",
		                             "CLOUDSDK_CONFIG",
		                             "STORAGE_EMULATOR_HOST",
		                             "GCE_METADATA_HOST",
		                             "S3_ENDPOINT_URL",
		                             "http_proxy",
		                             "https_proxy",
		                             "HTTP_PROXY",
		                             "HTTPS_PROXY",
		                             "ALL_PROXY",
		                             "all_proxy" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		unsetenv(names[i]);
	}
	setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
	setenv("AWS_METADATA_SERVICE_TIMEOUT", "20", 1);
	setenv("HOME", t_path("."), 1);
	setenv("SKYRL_TEST_SLEEP", "0", 1);
}

#endif
