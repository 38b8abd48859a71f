#include <magpie.h>
int main(void){return 0;}
