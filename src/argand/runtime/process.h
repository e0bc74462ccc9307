// What the extension measures and changes of its process and threads: stack, recursion, signals.
#ifndef ARGAND_PROCESS_H
#define ARGAND_PROCESS_H

// Whether this thread has used up the C stack that frames under a hook may take.
int argand_stack_is_low(void);

// The share is counted from here on; give the result to argand_end_stack_share.
char *argand_begin_stack_share(void);
void argand_end_stack_share(char *before);

// The compiler makes several calls of Python for one of the user's, and may be asked near the
// user's limit: in between, this thread may recurse as far as its stack allows.
typedef struct {
    int before, during; /* limits; equal: nothing granted */
} ArgandDepth;
ArgandDepth argand_deepen(void);
void argand_undeepen(ArgandDepth outer);

// Whether a debugger follows this thread: then what the user wrote runs, line by line. Other trace
// functions (coverage) follow as well and are no reason. The debugger does not see how this is found out.
int argand_is_debugged(void);

#endif
