/* Functions nobody may call here: unbounded, stateful or locale-bound. Included before every source file. */
#ifndef SKY_BANNED_H
#define SKY_BANNED_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#pragma GCC poison strcpy strcat strncpy strncat sprintf vsprintf strtok gets
#pragma GCC poison atoi atol gmtime localtime ctime asctime mktemp tmpnam popen
#endif
