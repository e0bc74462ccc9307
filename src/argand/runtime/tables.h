// Facts about tables that rarely change: see tables.c.
#ifndef ARGAND_TABLES_H
#define ARGAND_TABLES_H

#include "native.h"

extern PyTypeObject ArgandTables_Type;

// Whether all facts hold; `tables` is an ArgandTables_Type. May run Python code, never raises.
int argand_tables_hold(PyObject *tables);

#endif
